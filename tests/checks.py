"""Checks that are no programs' tests: each is a function; all are run, and the last line tells how many passed and failed."""

import shutil
import sys
import traceback

_checks = []


def check(function):
    """Notes a function as a check. It raises what is wrong, or gives a text that says what it left out."""
    _checks.append(function)
    return function


def problems(found):
    """Fails with all that was found, one a line."""
    found = list(found)
    assert not found, "\n".join(["", *found])


def has(program):
    return shutil.which(program) is not None


def run(only=""):
    """Runs the checks whose names contain a text, and ends the process."""
    passed = failed = 0
    for function in _checks:
        name = function.__name__.replace("_", " ")
        if only not in name:
            continue
        try:
            left_out = function()
        except AssertionError as error:
            print(f"FAILED  {name}: {error or traceback.format_exc()}")
            failed += 1
        except Exception:
            print(f"FAILED  {name}: {traceback.format_exc()}")
            failed += 1
        else:
            print(f"ok      {name}" + (f" ({left_out})" if left_out else ""))
            passed += 1
        sys.stdout.flush()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
