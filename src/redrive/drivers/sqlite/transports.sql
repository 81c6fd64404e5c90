-- Which transports letters go back through: read in a few steps, and not touched by a claim.
CREATE INDEX letters_transport ON letters (transport);
