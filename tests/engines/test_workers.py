"""Workers do every job once, end at the first failure, and leave no thread behind."""

import threading

import numpy as np
import pytest

from dp_polars._engines.polars.hash_table import HashTable
from dp_polars._engines.workers import Workers


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("jobs", [0, 1, 2, 1000])
def test_every_job_is_done_once(threads, jobs):
    done = []
    Workers(threads).each(iter(range(jobs)), done.append)
    assert sorted(done) == list(range(jobs))


def test_jobs_run_side_by_side():
    """Two jobs that wait for each other can only end if they run at the same time."""
    both = threading.Barrier(2, timeout=60)
    Workers(2).each(range(2), lambda job: both.wait())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_failing_job_ends_the_work_and_is_raised(threads):
    taken = []

    def jobs():
        for job in range(100_000):
            taken.append(job)
            yield job

    def work(job):
        if job == 30:
            raise ZeroDivisionError("job 30")

    with pytest.raises(ZeroDivisionError, match="job 30"):
        Workers(threads).each(jobs(), work)
    assert len(taken) < 100_000
    assert not any(thread.name == "dp_polars worker" for thread in threading.enumerate())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_jobs_that_cannot_be_made_are_a_failure(threads):
    def jobs():
        yield from range(20)
        raise OSError("no more")

    done = []
    with pytest.raises(OSError, match="no more"):
        Workers(threads).each(jobs(), done.append)
    assert sorted(done) == list(range(20))


def test_an_interrupt_of_the_waiting_thread_stops_the_others():
    main, done = threading.current_thread(), []

    def work(job):
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        done.append(job)

    with pytest.raises(KeyboardInterrupt):
        Workers(3).each(range(10_000_000), work)
    assert len(done) < 10_000_000
    assert not any(thread.name == "dp_polars worker" for thread in threading.enumerate())


def test_a_table_that_threads_share_numbers_every_hash_once():
    """Every thread asks which hashes are missing while others add some and the table grows."""
    known = np.random.default_rng(3).integers(0, 2**64, 50_000, np.uint64)
    table, added, lock = HashTable(), [], threading.Lock()
    is_added = np.zeros(len(known), dtype=bool)

    def work(job):
        places = np.random.default_rng(job).choice(len(known), 1000)
        hashes = known[places]
        if len(table.missing(hashes)):
            with lock:
                new = table.add(hashes)
                added.append(hashes[new])
                is_added[places[new]] = True
        assert is_added[places].all()  # what counted as known was added by somebody

    Workers(4).each(range(400), work)
    in_order = np.concatenate(added)
    assert len(np.unique(in_order)) == len(in_order)
    assert table.find(in_order).tolist() == list(range(len(in_order)))
