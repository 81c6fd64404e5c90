-- Changes nothing, and fails where nothing could be changed.
UPDATE {schema}.queue_sources SET paused = paused WHERE no = -1
