"""`python -m redrive.cli` is `redrive`."""

from redrive.cli import main

if __name__ == "__main__":
    main(prog_name="redrive")
