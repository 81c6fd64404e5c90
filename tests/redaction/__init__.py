"""What redaction masks and what it does not: secrets in carriers, and texts without any."""
