"""Threads that share the work on the rows of one question. They run side by side while NumPy and Polars compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

import numpy as np

Job = TypeVar("Job")


class Workers:
    """A number of threads. They exist only while there is work for more than one of them.

    What a unit contributes never depends on which thread does what: rows are sorted before units are told apart, and
    the contributions of units are added up as integers.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = max(threads, 1)
        _keep_freed_memory()

    def each(self, jobs: Iterable[Job], work: Callable[[Job], object]) -> None:
        """Do the work for each job, in any order. The first failure ends it, and is raised after all threads stopped.

        Jobs are made one at a time, so an iterator may free what is behind it.
        """
        source = iter(jobs)
        first = list(islice(source, min(self.threads, 2)))
        if len(first) < 2:
            for job in chain(first, source):
                work(job)
            return
        _Shared(chain(first, source), work).run(self.threads)


def _keep_freed_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones.

    By default it returns larger arrays to the system, and the next array costs a page fault for every 4 KiB. Measured
    on arrays of 1 MB, this takes three times as long as the work itself. Once glibc has freed an array of almost 32 MB,
    it expects more of them and keeps up to twice as much. Other C libraries ignore this. The array is never written to,
    so it takes no memory.
    """
    np.empty(31 << 20, np.uint8)


class _Shared:
    """Jobs that several threads take from one iterator."""

    def __init__(self, jobs: Iterator[Job], work: Callable[[Job], object]) -> None:
        self._jobs, self._work = jobs, work
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._failures: list[BaseException] = []

    def run(self, threads: int) -> None:
        """Work in so many threads, this one included."""
        others = [
            threading.Thread(target=self._quietly, name="dp_polars worker", daemon=True) for _ in range(threads - 1)
        ]
        started: list[threading.Thread] = []
        try:
            for thread in others:
                thread.start()
                started.append(thread)
            self._work_through()
        finally:
            self._stopped.set()  # after an interrupt of this thread, the others end after their present job
            for thread in started:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _quietly(self) -> None:
        try:
            self._work_through()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits for all of them
            self._failures.append(error)
            self._stopped.set()

    def _work_through(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                try:
                    job = next(self._jobs)
                except StopIteration:
                    return
            self._work(job)
