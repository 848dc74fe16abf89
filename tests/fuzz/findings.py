"""What a fuzzer reports."""

import re

CANARIES = re.compile(r"CANARY|77[78][0-9]{3}\.125(?![0-9])|canary", re.ASCII)
"""Values that stand in private columns only."""

TEXT_CANARIES = re.compile(r"CANARY|canary", re.ASCII)
"""The texts among them. A noisy number may be an amount by chance."""


class Finding(Exception):  # noqa: N818 - what it is
    """Something that must not happen; the first word of its text says which rule is broken."""


def named(error):
    """Return an error as a finding names it: its class, and its text without numbers and quotes."""
    text = re.sub(r"[0-9]+|'[^']*'|\"[^\"]*\"", "~", str(error).strip().split("\n")[0])[:120]
    return f"{type(error).__name__} {text}"
