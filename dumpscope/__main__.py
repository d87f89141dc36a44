"""`python -m dumpscope` is the same program."""

from dumpscope.cli.main import run

if __name__ == "__main__":
    run()
