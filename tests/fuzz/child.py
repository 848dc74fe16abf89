"""`python -m tests.fuzz.child`: read names of oracles and their cases as lines of JSON, and write how each case ended.

The memory is limited: what would take the machine's is an error here. What a case must not do is a finding; so is any
error that isn't the library's own, and a canary in what is printed meanwhile: a panic writes its message to stderr.
"""

import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from functools import cache

_MEMORY = 8 << 30


def main():
    """Answer until there are no more cases."""
    out = os.fdopen(os.dup(1), "w")
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
    os.dup2(printed.fileno(), 2)
    os.dup2(2, 1)  # nothing else may write among the answers
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    warnings.simplefilter("ignore")
    from tests.fuzz.findings import CANARIES, Finding, named
    from tests.fuzz.oracles import ORACLES

    oracle_of = cache(lambda name: ORACLES[name]())
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        name, case = json.loads(line)
        try:
            answer = {"end": oracle_of(name)(case)}
        except Finding as finding:
            answer = {"finding": str(finding)}
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            frames = [one for one in traceback.extract_tb(error.__traceback__) if "dp_polars" in one.filename]
            where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].name}" if frames else "outside"
            answer = {"finding": f"error: {named(error)} in {where}"}
        if CANARIES.search(_new_text(printed)) and not CANARIES.search(line):
            answer = {"finding": "canary: printed while the question was asked"}
        print(json.dumps(answer), file=out, flush=True)


def _new_text(printed):
    """Return what was printed since the last call."""
    sys.stderr.flush()
    size = os.fstat(printed.fileno()).st_size
    text = os.pread(printed.fileno(), size, 0).decode(errors="replace")
    os.ftruncate(printed.fileno(), 0)
    os.lseek(printed.fileno(), 0, os.SEEK_SET)
    return text


if __name__ == "__main__":
    main()
