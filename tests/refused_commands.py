"""Commands that must be refused."""

from crossreg.cli.main import main


def refused(capsys, *arguments) -> str:
    """Run a command that must be refused, with exit code 2 and nothing on standard output; return its one line."""
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err
