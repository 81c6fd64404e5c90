"""The commands, one file for each or for those that belong together; each is imported when it is called."""
