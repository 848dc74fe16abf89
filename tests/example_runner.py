"""Run scripts one after another in one process, each as a main program with a folder of its own.

A script takes less time than a process that imports the package. Each line of the input is a script and a folder, as
JSON; each line of the output its status and what it printed to standard output and standard error.
"""

import contextvars
import json
import os
import runpy
import sys
import tempfile
import traceback
import warnings


def main():
    """Answer until there are no more scripts."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        script, folder = json.loads(line)
        print(json.dumps(_run(script, folder)), file=answers, flush=True)


def _run(script, folder):
    os.chdir(folder)
    sys.path.insert(0, os.path.dirname(script))  # as Python does for a script
    status = 0
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        for file, number in ((printed, 1), (complained, 2)):
            os.dup2(file.fileno(), number)
        try:
            with warnings.catch_warnings():  # a warning that an earlier script showed is shown again
                contextvars.copy_context().run(runpy.run_path, script, run_name="__main__")
        except BaseException:  # noqa: BLE001 - a script may fail in any way
            traceback.print_exc()
            status = 1
        sys.path.remove(os.path.dirname(script))
        sys.stdout.flush()
        sys.stderr.flush()
        return status, *(_text(file) for file in (printed, complained))


def _text(file):
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode()


if __name__ == "__main__":
    main()
