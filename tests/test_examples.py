"""Every example runs as a person would run it, and prints what it promises."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dp_polars as dp

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


IN_A_PROCESS_OF_ITS_OWN = {
    "sharing_a_budget.py": "the processes that it starts run it, too",
    "exploring_marimo.py": "its second run must know nothing of the first",
    "spark_on_sail.py": "it starts a server",
    "spark_with_workers.py": "it starts a server",
}
"""Examples that cannot share a process with others, and why."""


@pytest.fixture(scope="module")
def runner():
    """The process in which most examples run: importing the package takes longer than many of them."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("example_runner.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def run_example(runner):
    """Run an example and return what it prints. It must neither fail nor warn."""

    def run(name, folder):
        if name in IN_A_PROCESS_OF_ITS_OWN:
            command = [sys.executable, str(EXAMPLES / name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            status, printed, complained = done.returncode, done.stdout, done.stderr
        else:
            runner.stdin.write(json.dumps([str(EXAMPLES / name), str(folder)]) + "\n")
            runner.stdin.flush()
            status, printed, complained = json.loads(runner.stdout.readline())
        assert status == 0, complained
        assert complained == ""
        return printed

    return run


# Tests below run these examples and look at their output, so they need no second run.
LOOKED_AT = set(re.findall(r'run_example\("(\w+\.py)"', Path(__file__).read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({path.name for path in EXAMPLES.glob("*.py")} - LOOKED_AT))
def test_the_example_runs(name, tmp_path, run_example):
    assert run_example(name, tmp_path)


@pytest.mark.slow
def test_counting_with_a_budget_releases_twice_and_is_refused_once(tmp_path, run_example):
    printed = run_example("counting_with_a_budget.py", tmp_path)
    assert printed.count("all counts are within") == 2
    assert printed.count("does not fit the session's budget") == 1
    assert "80 % used, 20 % left" in printed


@pytest.mark.slow
def test_the_flights_are_counted_near_the_truth(tmp_path, run_example):
    """With scale 3000 for airports and 5 for fleets, the noise exceeds 30 scales with probability below 1e-11."""
    printed = run_example("flights.py", tmp_path)
    rows = [line.strip("│").split("┆") for line in printed.splitlines() if line.startswith("│")]
    shown = {cells[0].strip(): (float(cells[1]), float(cells[-1])) for cells in rows if cells[-1].strip().isdigit()}
    assert len(shown) >= 3 + 8
    for name, (private, true) in shown.items():
        # A cap of 200 flights cuts a plane off that flew more often: at most a tenth of an airport's flights.
        assert abs(private - true) < (90_000 if len(name) == 3 else 150), name
    assert "releases: 3" in printed


@pytest.mark.slow
def test_the_winners_of_private_votes(tmp_path, run_example):
    """Blue leads by 220 at a rate of 0.1; one of 200 films that is 215 behind is chosen with probability below 1e-7."""
    printed = run_example("private_voting.py", tmp_path)
    assert "Both men voted red" in printed
    assert "noisy max:    blue" in printed
    assert "as one between two films: True" in printed
    liked = re.findall(r"noisy max: film \d+, liked by ([\d,]+)", printed)
    assert int(liked[0].replace(",", "")) > 1000 - 215


@pytest.mark.slow
def test_the_price_of_an_auction_earns_nearly_the_most(tmp_path, run_example):
    """At a rate of 0.1, one of 100 prices that earns 210 less than the best is chosen with probability below 1e-7."""
    printed = run_example("auction_price.py", tmp_path)
    assert "1.00: 4.00\n  1.01: 1.01\n  3.01: 3.01\n  3.02: 0.00" in printed
    chosen, best = (float(earned) for earned in re.findall(r"price +[\d.]+: earns ([\d.]+)", printed))
    assert best - 210 < chosen <= best


@pytest.mark.slow
def test_the_error_laws_show_that_noise_on_queries_grows_with_them(tmp_path, run_example):
    """The largest of 1,000 Laplace noises of scale 1,000 is above 2,000, and that of Gaussian noises is below 1,000."""
    printed = run_example("error_laws.py", tmp_path)
    rows = [[cell.strip() for cell in line.strip("│").split("┆")] for line in printed.splitlines() if "┆" in line]
    shown = {name: [int(cell) for cell in cells] for name, *cells in rows if name != "k ="}
    assert len(shown) == 7
    assert shown["Laplace on queries"][0] < 50 < 2000 < shown["Laplace on queries"][-1]
    assert shown["Gaussian on queries"][-1] < 1000
    assert shown["multiplicative weights"][-1] < shown["Laplace on queries"][-1]


@pytest.mark.slow
def test_a_watched_stream_finds_the_busy_days_and_no_others(tmp_path, run_example):
    """Busy days lie 600 above the threshold and others 500 below, at least 25 noise scales (false alarm 1e-8)."""
    printed = run_example("watching_a_stream.py", tmp_path)
    lines = dict(line.split(": ") for line in printed.splitlines() if line.count(": ") == 1)
    busy = {month: found for month, found in lines.items() if found.endswith(month)}
    assert list(busy.values()) == ["15 February", "11 April", "05 July", "11 October", "27 November"]
    assert printed.count("nothing above") == 6
    assert "closed>" in printed
    assert "Left of the budget: 50%" in printed


@pytest.mark.slow
def test_a_notebook_of_another_tool_asks_through_the_connection():
    """jupysql holds the connection, opens its own cursors and knows nothing about privacy."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "examples" / "sql_in_a_notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("output_type") == "execute_result"
    ]
    counts, means, again, budget = shown[-4:]
    assert counts == again
    assert "north" in counts
    assert "east" in means
    assert "0.6" in budget
    assert not [o for cell in notebook.cells for o in cell.get("outputs", []) if o.get("output_type") == "error"]


@pytest.mark.slow
def test_the_averaging_attack_works_without_a_session_and_not_with_one(tmp_path, run_example):
    """The average of 100 answers of scale 10 is off by more than 9 (six deviations) with probability below 1e-8."""
    printed = run_example("averaging_attack.py", tmp_path)
    assert float(printed.split("the average of 100: ")[1].split("off by ")[1].split("\n")[0]) < 9
    assert "100 answers, 1 different, epsilon 0.1 spent" in printed
    assert "after 9 more answers: " in printed
    assert "does not fit the session's budget" in printed


@pytest.mark.slow
def test_the_cells_of_a_notebook_run_twice_cost_once(tmp_path):
    """All cells run, and run again in the same kernel; then the whole notebook runs in a new one."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "examples" / "exploring_flights.ipynb", as_version=4)
    once = len(notebook.cells)
    notebook.cells = [*notebook.cells, *(cell.copy() for cell in notebook.cells)]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"run-{number}"
    for _ in range(2):
        client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        client.execute()
        last, before = notebook.cells[-1], notebook.cells[once - 1]
        texts = [cell["outputs"][0]["text"] for cell in (last, before)]
        assert texts[0] == texts[1]
        assert "releases: 2" in texts[0]
    session = dp.Session.from_ledger(tmp_path / "flights_budget.db")
    assert [release.state for release in session.releases] == ["committed", "committed"]


@pytest.mark.slow
def test_a_marimo_notebook_run_twice_costs_once(tmp_path, run_example):
    outputs = [run_example("exploring_marimo.py", tmp_path) for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert "releases: 2" in outputs[1]


@pytest.mark.slow
def test_four_processes_share_a_budget_for_three(tmp_path, run_example):
    printed = run_example("sharing_a_budget.py", tmp_path)
    assert printed.count("refused") == 1
    assert printed.count("about ") == 3
    assert "90 % used, 10 % left" in printed


@pytest.mark.slow
def test_choosing_shows_errors_before_anything_is_spent(tmp_path, run_example):
    printed = run_example("choosing_epsilon_and_bounds.py", tmp_path)
    assert "epsilon  0.5:     18 with  1 visits each" in printed
    assert "estimated (15% of the spend)" in printed


@pytest.mark.slow
def test_an_audit_keeps_what_is_right_and_refutes_what_is_claimed_too_low(tmp_path, run_example):
    """The claim of 0.8 lies twenty deviations below the bound. True claims are not tested: chance refutes 1 %."""
    printed = run_example("auditing.py", tmp_path)
    assert "\nviolation: at least epsilon" in printed
    assert "can refute a guarantee, but never prove it" in printed
