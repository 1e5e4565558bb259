"""`python -m crossreg` is the command `crossreg`."""

from crossreg.cli.main import run

if __name__ == "__main__":
    run()
