"""Run cases in a child process, and see when it dies or says nothing."""

import contextlib
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import grammar_functions, grammar_pipelines, grammar_polars, grammar_sql, grammar_statements
from tests.fuzz.dice import Dice

PATIENCE = 20.0  # seconds for one case
_START = 600.0

GRAMMARS = {
    "sql": grammar_sql.expression,
    "polars": grammar_polars.expression,
    "statements": grammar_statements.statement,
    "functions": grammar_functions.call,
    "pipelines": grammar_pipelines.pipeline,
}


def cases(name):
    """Return a strategy of cases: one half of the dice Hypothesis throws, and can shrink; the others are fair."""
    fair = st.integers(0, 1 << 62).map(random.Random)
    return (st.randoms(use_true_random=False) | fair).map(lambda source: GRAMMARS[name](Dice(source)))


class Child:
    """A process that answers one case after another; it is started again after its death."""

    def __init__(self, patience=PATIENCE):
        self.patience = patience
        self._process = None

    def ask(self, name, case):
        """Return how a case of an oracle ended: {"end": ...} or {"finding": ...}."""
        if self._process is None:
            self._begin()
        try:
            self._process.stdin.write(json.dumps([name, case]) + "\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=self.patience)
        except BrokenPipeError:
            answer = None
        except queue.Empty:
            self.close()
            return {"finding": f"time-out: no answer after {self.patience:.0f} s"}
        if answer is None:
            status = self._process.wait()
            self.close()
            return {"finding": f"crash: the process died with status {status}"}
        return answer

    def _begin(self):
        environment = {**os.environ, "POLARS_MAX_THREADS": "2", "RUST_BACKTRACE": "0"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answers = queue.Queue()
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout, self._answers), daemon=True)
        self._listener.start()
        if self._answers.get(timeout=_START) != "ready":
            raise RuntimeError("the child of the fuzzer did not start")

    @staticmethod
    def _listen(lines, answers):
        for line in lines:
            answers.put(json.loads(line))
        answers.put(None)

    def close(self):
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._listener.join()
            self._process.stdout.close()
            self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@dataclass
class Report:
    """What a run of a fuzzer found; of each kind of finding, how often and the shortest case."""

    name: str
    cases: int = 0
    seconds: float = 0.0
    ends: dict = field(default_factory=dict)
    findings: dict = field(default_factory=dict)

    def add(self, case, answer):
        """Count a case."""
        self.cases += 1
        finding = answer.get("finding")
        if finding is None:
            self.ends[answer["end"]] = self.ends.get(answer["end"], 0) + 1
            return
        times, shortest = self.findings.get(finding, (0, None))
        if shortest is None or len(json.dumps(case)) < len(json.dumps(shortest)):
            shortest = case
        self.findings[finding] = (times + 1, shortest)

    def summary(self):
        """Return the numbers in one line."""
        ends = ", ".join(f"{number:,} {end}" for end, number in sorted(self.ends.items()))
        kinds = len(self.findings)
        return f"{self.name}: {self.cases:,} cases in {self.seconds:,.0f} s: {ends}; {kinds} kinds of findings"

    def __str__(self):
        """Return the report as text."""
        lines = [self.summary()]
        for finding, (times, case) in sorted(self.findings.items()):
            lines += [f"  {times} x {finding}", f"    {json.dumps(case)}"]
        return "\n".join(lines)


def explore(name, number, start, most_seconds=float("inf"), watch=None):
    """Run a number of cases, all of them whatever is found, and return a report."""
    report, began = Report(name), time.monotonic()
    with Child() as child:

        @seed(start)
        @settings(max_examples=number, phases=[Phase.generate], database=None, deadline=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(cases(name))
        def run(case):
            if time.monotonic() - began < most_seconds:
                report.add(case, child.ask(name, case))
                if watch is not None and report.cases % 500 == 0:
                    report.seconds = time.monotonic() - began
                    watch(report)

        run()
    report.seconds = time.monotonic() - began
    return report
