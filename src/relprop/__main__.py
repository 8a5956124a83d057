"""`python -m relprop`: the command line."""

from relprop.cli import main

if __name__ == "__main__":
    main()
