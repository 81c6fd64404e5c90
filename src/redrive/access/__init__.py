"""Who may do what: tokens and their roles."""
