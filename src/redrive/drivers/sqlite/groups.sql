-- Which letters wait for a message, read in a few steps, however many letters there are.
CREATE INDEX dependencies_message ON dependencies (message_id, letter_id);
