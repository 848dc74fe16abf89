"""`python -m tests.fuzz.child NAME`: read cases as lines of JSON, and write for each how it ended.

The memory is limited: what would take the machine's is an error here. What a case must not do is a finding; so is any
error that isn't the library's own.
"""

import json
import os
import resource
import sys
import traceback
import warnings

_MEMORY = 8 << 30


def main():
    """Answer until there are no more cases."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write among the answers
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    warnings.simplefilter("ignore")
    from tests.fuzz.findings import Finding, named
    from tests.fuzz.oracles import ORACLES

    oracle = ORACLES[sys.argv[1]]()
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        try:
            answer = {"end": oracle(json.loads(line))}
        except Finding as finding:
            answer = {"finding": str(finding)}
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            frames = [one for one in traceback.extract_tb(error.__traceback__) if "dp_polars" in one.filename]
            where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].name}" if frames else "outside"
            answer = {"finding": f"error: {named(error)} in {where}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
