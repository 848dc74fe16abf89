"""Attacks that once broke the guarantee through Polars, each as a test of what an observer sees.

An attack asks the same question of two neighbours, with and without one person, and looks for any difference beyond
what noise covers: another answer for the other people, an error, another charge, a process that dies. The epsilon is
so large that there is no noise, so answers can be compared exactly.
"""

import os

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines.polars.program import Program
from dp_polars._engines.polars.scan import lazy_rows, polars_rows
from dp_polars._expressions import Column, Constant, apply
from dp_polars._expressions.tree import walk
from tests.attacks.children import Outcome, run

HUGE = 10**5  # an epsilon at which there is no noise to be seen

pytestmark = pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")


def session(**words):
    return dp.Session(**{"epsilon": 10**6, "unit": "user", "max_rows_per_group": 1, **words})


def outcome(ask):
    """Return what an observer sees of a question: its answer, or the error's name."""
    try:
        return ask()
    except dp.DPError as error:
        return type(error).__name__


# ---------------------------------------------------------------------- values that grow without limit

GROWING = {
    # The attack itself: hexadecimal digits double a value; 32 steps make 4 gigabytes of 5 bytes.
    "bytes, step by step": """
f = f.filter(pl.col("name") == "alice").with_columns(b=pl.col("name").cast(pl.Binary))
for _ in range(32):
    f = f.with_columns(b=pl.col("b").bin.encode("hex").cast(pl.Binary))
f = f.filter(pl.col("b").bin.size() > 3)
""",
    "bytes, nested behind a condition": """
e = pl.when(pl.col("name") == "alice").then(pl.col("name")).otherwise(pl.lit("")).cast(pl.Binary)
for _ in range(28):
    e = e.bin.encode("hex").cast(pl.Binary)
f = f.filter(e.bin.size() >= 0)
""",
    # The same with what the language has.
    "texts, step by step": """
f = f.filter(pl.col("name") == "alice")
for _ in range(40):
    f = f.with_columns(name=pl.concat_str("name", "name"))
f = f.filter(pl.col("name").str.len_bytes() > 3)
""",
    "texts, nested behind a condition": """
e = pl.when(pl.col("name") == "alice").then(pl.col("name")).otherwise(pl.lit(""))
for _ in range(12):
    e = e.str.replace_all("", "x" * 90)
f = f.filter(e.str.len_bytes() >= 0, pl.col("name") == "alice")
""",
    "texts that are padded": """
f = f.filter(pl.col("name") == "alice")
for n in range(30):
    f = f.with_columns(name=pl.col("name").str.pad_start(1_000).str.replace_all(" ", "é" * 100))
f = f.filter(pl.col("name").str.len_bytes() > 3)
""",
}
REFUSED = ("bytes, step by step", "bytes, nested behind a condition")

# One child tries them all, each by itself; what it printed before it died tells which one killed it.
GROW = """
rows = int(sys.argv[1])
df = pl.DataFrame({"user": [1, 2, 3] + [4] * rows, "name": ["bob", "carol", "dave"] + ["alice"] * rows})
for how, steps in eval(sys.argv[2]).items():
    names = {"pl": pl, "f": dp.private(df, session())}
    try:
        exec(steps, names)
        print(how, names["f"].count_units(epsilon=HUGE).item(), sep=": ", flush=True)
    except dp.DPError as error:
        print(how, type(error).__name__, sep=": ", flush=True)
"""


@pytest.mark.slow
def test_no_value_can_be_made_to_fill_the_memory():
    """binary_growth: a value that doubles in each step kills the process if and only if one person is there."""
    for alice in (1, 0):
        found = run(GROW, str(alice), repr(GROWING))
        expected = {how: "ExpressionNotAllowed" if how in REFUSED else str(alice) for how in GROWING}
        assert found == Outcome(0, "\n".join(f"{how}: {text}" for how, text in expected.items()))


MANY = {
    # The attack itself: a text of 16 kB, five thousand times in each of sixty rows.
    "a long constant, joined with itself": """
f = f.with_columns(t=pl.when(pl.col("name") == "alice").then(pl.lit("x" * 16_384)).otherwise(pl.col("name")))
f = f.with_columns(t=pl.concat_str([pl.col("t")] * 5_000))
""",
    "constants of the longest kind, joined as often as may be": """
long = pl.when(pl.col("name") == "alice").then(pl.lit("x" * 4_096)).otherwise(pl.col("name"))
f = f.with_columns(t=long)
for _ in range(2):
    f = f.with_columns(t=pl.concat_str([pl.col("t")] * 100))
""",
    "a long text of a public frame, beside something that is made longer": """
public = pl.DataFrame({"name": ["alice"], "long": ["x" * (20 << 20)]})
f = f.join(public, on="name", how="left").with_columns(t=pl.col("long"), more=pl.col("name") + "x")
f = f.filter(pl.col("t").str.len_bytes().fill_null(0) >= 0, pl.col("more") != "")
""",
    "a long text of a public frame behind a condition": """
public = pl.DataFrame({"name": ["alice"], "long": ["x" * (20 << 20)]})
f = f.join(public, on="name", how="left")
f = f.with_columns(t=pl.when(pl.col("name") == "alice").then(pl.col("long")).otherwise(pl.col("name")))
""",
    "a list of a public frame whose parts are long": """
part = pl.Series(["x" * (1 << 20)])
public = pl.DataFrame({"name": ["alice"], "parts": part.gather([0] * 300).implode()})
f = f.join(public, on="name", how="left").with_columns(t=pl.col("parts").list.join(""))
""",
    "a public text that looks short in a struct": """
public = pl.DataFrame({"name": ["alice"], "long": ["x" * (20 << 20)]}).select("name", s=pl.struct("long"))
f = f.join(public, on="name", how="left").with_columns(t=pl.col("s").struct.field("long"), more=pl.col("name") + "x")
""",
    "many long columns": """
wide = pl.when(pl.col("name") == "alice").then(pl.lit("é" * 4_096)).otherwise(pl.col("name"))
f = f.with_columns(t=wide)
f = f.with_columns(t=pl.concat_str([pl.col("t")] * 4))
f = f.with_columns([(pl.col("t") + str(n)).alias(f"t{n}") for n in range(60)])
f = f.filter(*(pl.col(f"t{n}").str.len_bytes() >= 0 for n in range(60)))
""",
}
REFUSALS = {how: "InvalidParameterError" for how in MANY if "public" in how} | {
    "a long constant, joined with itself": "ExpressionNotAllowed"
}

NOT_LONG = "f = f.filter(pl.col('t').str.len_bytes().fill_null(0) >= 0)"


PEAK = """
from pathlib import Path
status = Path("/proc/self/status")  # what getrusage says begins with the peak of the process that started this one
lines = status.read_text().splitlines() if status.exists() else []
own = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
print("peak", (own or [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0] >> 10, sep=": ")
"""
MOST_PEAK = 1_500  # MB; two gigabytes of texts are made of 1,000 rows, and 256 MB of them may be there at once


@pytest.mark.slow
def test_no_number_of_rows_with_long_texts_can_fill_the_memory():
    """text_growth_rows: texts that are short enough alone fill the memory if one person has enough rows of them."""
    steps = {how: text + NOT_LONG for how, text in MANY.items()}
    found = [run(GROW + PEAK, str(rows), repr(steps), memory=6 << 30) for rows in (1_000, 0)]
    there, missing = (dict(line.split(": ") for line in one.printed.splitlines()) for one in found)
    assert list(there) == [*MANY, "peak"], "the process died in the next one"
    assert [one.status for one in found] == [0, 0]
    assert int(there.pop("peak")) < MOST_PEAK
    for how, answer in there.items():
        assert (answer, missing[how]) in (("4", "3"), (REFUSALS.get(how),) * 2), how


X = Column("x", pl.Int64())


def number(n):
    return Constant(n, pl.Int64())


def made(step):
    return {f"c{step}_{n}": apply("add", X, number(n)) for n in range(100)}


CHOICE = [part for n in range(300) for part in (apply("eq", X, number(n)), number(n + 1))]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["constants", "columns"])
def test_no_number_of_rows_fills_the_memory_with_numbers(how, monkeypatch):
    """text_growth_rows: constants are columns of a batch's height, and a column stays until nobody needs it."""
    parts = []
    computed = Program._computed

    def watched(self, part, height, *given):
        nodes = sum(1 for own in self._expressions for _ in walk(own))
        parts.append(height * (nodes + (0 if part is None else part.width)))
        return computed(self, part, height, *given)

    monkeypatch.setattr(Program, "_computed", watched)
    rows = polars_rows(pl.DataFrame({"x": range(50_000)}).lazy())  # each way makes 480 MB of numbers
    if how == "constants":
        rows = rows.make({"c": apply("case", *CHOICE, number(0))})
    else:
        for step in range(4):
            rows = rows.make(made(step))
    if how == "columns":  # all of them are needed in the end
        for place in range(4):
            rows = rows.filter(
                apply("and", *(apply("ge", Column(name, pl.Int64()), number(0)) for name in made(place)))
            )
    found = lazy_rows(rows, ["c" if how == "constants" else "x"]).collect(engine="streaming").to_series()
    assert len(found) == 50_000
    assert max(found) == (300 if how == "constants" else 49_999)
    assert max(parts) * 16 <= 1 << 28


# ---------------------------------------------------------------------- what leaves as what


@pytest.mark.parametrize(
    "expr",
    [
        pl.lit(0.1).is_in(pl.lit(-2.5)),
        pl.lit("a").is_in(pl.lit("b")),
        pl.lit(0.1).is_in([[-2.5]]),
        pl.lit(None).is_in(pl.lit(None)),
        pl.lit([1]).list.contains(pl.lit([2])),
    ],
    ids=str,
)
def test_a_panic_while_an_expression_is_checked_is_no_exception_of_its_own(expr):
    """checker_panic: pyo3's PanicException is not an Exception, so it escaped every `except Exception` of a server."""
    paying = session()
    found = outcome(lambda: type(dp.private(pl.DataFrame({"user": [1]}), paying).filter(expr)).__name__)
    assert found in ("PrivateFrame", "ExpressionNotAllowed")
    assert paying.spent.epsilon == 0


# ---------------------------------------------------------------------- constants and look-ups of another height

CONSTANTS = {
    "replace_strict of a constant": lambda k: pl.lit(True).replace_strict(range(1, k + 1), range(k), default=0),
    "replace of a constant": lambda k: pl.lit(1).replace([n + 0.5 for n in range(k)], [1] * k),
    "when with constants alone": lambda k: pl.when(pl.lit(k) > 2).then(pl.lit(1)).otherwise(pl.lit(0)),
    "is_in of a constant": lambda k: pl.lit(k).is_in(list(range(k))).cast(pl.Int64),
    "split of a constant": lambda k: pl.lit("a," * k).str.split(",").list.len().cast(pl.Int64),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_has_no_number_of_rows_of_its_own(name):
    """constant_length: with a constant of k rows, a question worked only if k rows were left: an exact count."""
    truth = 4
    df = pl.DataFrame({"user": range(28), "sick": [i % 7 == 0 for i in range(28)]})
    found = set()
    for k in range(1, 8):
        made = CONSTANTS[name](k)
        private = dp.private(df, session()).filter(pl.col("sick"))
        found.add(outcome(lambda made=made, private=private: private.with_columns(c=made).filter(
            pl.col("c").fill_null(0) >= 0).count(epsilon=HUGE).item()))  # fmt: skip
    assert found in ({truth}, {"ExpressionNotAllowed"})


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 1_000])
def test_a_lone_row_is_not_broadcast_to_the_height_of_a_constant(k):
    """constant_length: with dp.ROW, a single remaining row became k rows."""
    df = pl.DataFrame({"name": ["bob", "alice"]})
    for name in CONSTANTS:
        private = dp.private(df, session(unit=dp.ROW)).filter(pl.col("name") == "alice")
        found = outcome(
            lambda private=private, name=name: private.with_columns(c=CONSTANTS[name](k)).count(epsilon=HUGE).item()
        )
        assert found in (1, "ExpressionNotAllowed"), name


VALUE = 123_457
EQUAL = [VALUE + k / 2_000 for k in range(1_000)]  # different floats that are one integer


def salaries(*, alice):
    return pl.DataFrame({"user": range(1_000), "salary": [20_000 + i for i in range(999)] + [VALUE if alice else 1]})


def found_in(stream_of, question):
    stream = dp.private(stream_of, session()).sparse_vector(-1, hits=1, numeric=True, epsilon=HUGE)
    return stream.ask(question)


HAS_VALUE = pl.col("salary").replace_strict(EQUAL, [True] * 1_000, default=False)
ONE_FOR_VALUE = pl.col("salary").replace_strict(EQUAL, [1] * 1_000, default=0)
MULTIPLYING = {
    "condition of a stream": lambda f: found_in(f, HAS_VALUE),
    "sum of a stream": lambda f: found_in(f, dp.sum(ONE_FOR_VALUE, bounds=(0, 1))),
    "filter": lambda f: dp.private(f, session()).filter(HAS_VALUE).count(epsilon=HUGE).item(),
    "by": lambda f: dp.private(f, session()).count(by=ONE_FOR_VALUE, keys=[0, 1], epsilon=HUGE)["count"].to_list(),
    "with_columns": lambda f: (
        dp.private(f, session(max_rows_per_group=10**4))
        .with_columns(x=pl.col("salary").replace(EQUAL, [1] * 1_000))
        .count(epsilon=HUGE)
        .item()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MULTIPLYING)
def test_old_values_that_are_equal_after_a_cast_multiply_no_row(name):
    """replace_multiplies: Polars joins by the old values, so a row that matches k of them became k rows."""
    found = [outcome(lambda alice=alice: MULTIPLYING[name](salaries(alice=alice))) for alice in (False, True)]
    # 123457.0 alone is the salary; what lies between two integers is nobody's.
    expected = {"with_columns": [1_000, 1_000], "by": [[1_000, 0], [999, 1]]}.get(name, [0, 1])
    assert found == expected


# ---------------------------------------------------------------------- rows that are lost on the way


def chunked(*, alice):
    """Return 40 chunks of 1,000 rows. A filter empties one of them, unless alice is there."""
    parts = [["carol" if i == 1 else "bob"] * 1_000 for i in range(40)]
    if alice:
        parts[1][-1] = "alice"
    frames = [pl.DataFrame({"name": part}) for part in parts]
    return pl.concat(frames, rechunk=False).with_row_index("user")


@pytest.mark.slow
@pytest.mark.parametrize("alice", [True, False])
@pytest.mark.parametrize("kind", ["frame", "file"])
def test_a_chunk_that_a_filter_empties_loses_nobody_elses_rows(alice, kind, tmp_path):
    """format_empty_chunk: Polars panicked in such a chunk, and the rows so far were taken for all."""
    frame = chunked(alice=alice)
    if kind == "file":
        frame.write_parquet(tmp_path / "p.parquet", row_group_size=1_000)
        frame = pl.scan_parquet(tmp_path / "p.parquet")
    private = dp.private(frame, session(max_groups=1)).filter(pl.col("name").is_in(["alice", "bob"]))
    made = private.with_columns(k=pl.format("{}-{}", pl.col("name"), pl.lit(1)))
    answer = made.count_units("k", keys=["bob-1"], epsilon=HUGE).lazy().collect()
    assert answer.rows() == [("bob-1", 39_000)]


@pytest.mark.parametrize("error", [ValueError, pl.exceptions.PanicException])
def test_a_failure_in_the_middle_is_never_taken_for_the_end(error):
    """format_empty_chunk: an engine that fails after some batches must fail, not answer for the rows so far."""
    seen = []

    def fails_later(batch):
        seen.append(batch.height)
        if len(seen) > 2:
            raise error("SECRET")
        return batch

    frame = chunked(alice=False).lazy().map_batches(fails_later, streamable=True)
    paying = session()
    # Polars 1.44 wraps what a deferred frame raises.
    with pytest.raises((dp.EngineError, pl.exceptions.ComputeError), match="engine failed on private rows") as refused:
        dp.private(frame, paying).count_units(epsilon=HUGE).collect()
    assert "SECRET" not in str(refused.value)
    assert paying.closed


# ---------------------------------------------------------------------- what counts as the same question


def ns(number, kind):
    return pl.Series([number], dtype=pl.Int64).cast(kind)


NESTED = {
    "struct": lambda one: (pl.DataFrame({"lim": one}).select(pl.struct("lim").alias("cfg")), ["struct.field", "lim"]),
    "list": lambda one: (pl.DataFrame({"cfg": one.implode()}), ["list.get", 0]),
    "array": lambda one: (pl.DataFrame({"cfg": one.reshape((1, 1))}), ["arr.get", 0]),
}


def reached(path):
    space, method = path[0].split(".")
    return getattr(getattr(pl.col("cfg"), space), method)(path[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pl.Datetime("ns"), pl.Duration("ns"), pl.Time()], ids=str)
@pytest.mark.parametrize("shape", NESTED)
def test_public_frames_that_differ_by_nanoseconds_inside_are_different_questions(shape, kind):
    """digest_collision: times inside lists and structs lost their nanoseconds, so one question got another's answer."""
    people = pl.DataFrame({"user": range(1_000), "k": 1, "at": ns(5, kind).new_from_index(0, 1_000)})
    paying = session()
    answers, spent = [], []
    for limit in (4, 6):
        public, path = NESTED[shape](ns(limit, kind))
        joined = dp.private(people, paying).join(public.with_columns(k=pl.lit(1, dtype=pl.Int32)), on="k")
        asked = joined.with_columns(lim=reached(path)).filter(pl.col("at") <= pl.col("lim"))
        answers.append(asked.count_units(epsilon=HUGE).item())
        spent.append(paying.spent.epsilon)
    assert answers == [0, 1_000]
    assert spent == [HUGE, 2 * HUGE]


def csv_of(path, people):
    path.parent.mkdir(exist_ok=True)
    path.write_text("user\n" + "".join(f"{i % people:05d}\n" for i in range(1_000)))
    os.utime(path, ns=(0, 10**18))
    return path


def two_folders(tmp, monkeypatch):
    """Ask two files of the same name, size and time in two folders, each by its relative path."""
    for year, people in (("2023", 100), ("2024", 900)):
        csv_of(tmp / year / "v.csv", people)
        monkeypatch.chdir(tmp / year)
        yield pl.scan_csv("v.csv", schema={"user": pl.Int64}), people


def a_pattern(tmp, monkeypatch):
    """Use a name that is a file to the system, and a pattern for other files to Polars."""
    pl.DataFrame({"user": [0]}).write_parquet(tmp / "d[1].parquet")
    for people in (100, 700):
        pl.DataFrame({"user": range(people)}).write_parquet(tmp / "d1.parquet")
        yield pl.scan_parquet(tmp / "d[1].parquet"), people


LAST = {"rows": 0}


def shortened(frame):
    return frame.head(LAST["rows"])


def a_function(tmp, monkeypatch):
    """Use a function that is recorded by its name, and does something else the second time."""
    pl.DataFrame({"user": range(5_000)}).write_parquet(tmp / "m.parquet")
    for people in (100, 4_000):
        monkeypatch.setitem(LAST, "rows", people)
        yield pl.scan_parquet(tmp / "m.parquet").map_batches(shortened), people


def a_link(tmp, monkeypatch):
    """Use a link that leads to another file the second time."""
    for year, people in (("2023", 100), ("2024", 900)):
        csv_of(tmp / year / "v.csv", people)
        (tmp / "l.csv").unlink(missing_ok=True)
        (tmp / "l.csv").symlink_to(tmp / year / "v.csv")
        yield pl.scan_csv(tmp / "l.csv", schema={"user": pl.Int64}), people


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [two_folders, a_pattern, a_function, a_link])
def test_a_release_of_other_data_is_never_given_again(swapped, tmp_path, monkeypatch):
    """source_identity: a question about another file under the same name got the stored release, for free."""
    paying = session(ledger=tmp_path / "budget.db")
    for place, (frame, people) in enumerate(swapped(tmp_path, monkeypatch), 1):
        assert dp.private(frame, paying).count_units(epsilon=HUGE).collect().item() == people
        assert paying.spent.epsilon == place * HUGE
    paying.close()


# ---------------------------------------------------------------------- who is protected


@pytest.mark.parametrize("unit", [dp.ROW, "visit", ["user", "visit"], {"user": "visit", "visit": "user"}])
def test_a_table_can_not_be_asked_with_a_weaker_unit_than_was_agreed(unit):
    """unit_override: unit=dp.ROW turned one person's 1,000 rows into 1,000 people, and the ledger did not say so."""
    df = pl.DataFrame({"user": [1] * 1_000, "visit": range(1_000)})
    paying = session()
    assert outcome(lambda: dp.private(df, paying, unit=unit).count(epsilon=HUGE).item()) == "InvalidParameterError"
    assert paying.spent.epsilon == 0
    assert dp.private(df, paying).count(epsilon=HUGE).item() == 1


@pytest.mark.parametrize("name", ["^x$", "^.*$", "*"])
def test_a_unit_column_is_never_read_as_a_pattern(name):
    """unit_override: pl.col('^x$') is the column x, so another column than the agreed one told people apart."""
    df = pl.DataFrame({name: [1] * 1_000, "x": range(1_000)})
    assert outcome(lambda: dp.private(df, session(unit=name)).count(epsilon=HUGE).item()) == "InvalidParameterError"


# ---------------------------------------------------------------------- values that depend on how many rows there are

SIGNS = {
    "bytes": "(0.0 - x).cast(pl.Binary) == b'-0.0'",
    "half a float": "(0.0 - x).cast(pl.Float16).cast(pl.String) == '-0.0'",
    "text": "(0.0 - x).cast(pl.String) == '-0.0'",
    "text of a short float": "(0.0 - x).cast(pl.Float32).cast(pl.String) == '-0.0'",
    "joined text": "pl.concat_str([0.0 - x, pl.lit('')]) == '-0.0'",
    "format": "pl.format('{}', 0.0 - x) == '-0.0'",
    "division": "1.0 / (0.0 - x) < 0",
    "power": "(0.0 - x).pow(-1) < 0",
    "angle": "pl.arctan2(0.0 - x, pl.lit(-1.0)) < 0",
    "root": "1.0 / (0.0 - x).cbrt() < 0",
    "rounded": "(0.0 - x).round(1).cast(pl.String) == '-0.0'",
    "negated": "(-x).cast(pl.String) == '-0.0'",
    "times": "(x * -1.0).cast(pl.String) == '-0.0'",
    "smaller of two": "pl.min_horizontal(0.0 - x, x).cast(pl.String) == '-0.0'",
    "replaced": "(0.0 - x).replace_strict([0.0], ['plus'], default='minus') == 'minus'",
    "replaced the other way": "(0.0 - x).replace_strict([-0.0], ['minus'], default='plus') == 'plus'",
    "listed": "~(0.0 - x).is_in([-0.0])",
}

# The streaming engine cuts a frame of N rows into min(N, threads) batches: with as many rows as threads everyone is
# alone in a batch, with one more nobody is.
SIGN = """
x = pl.col("x")
for name, text in eval(sys.argv[1]).items():
    found = []
    for people in (15, 16, 17, 32):
        df = pl.DataFrame({"user": range(people), "x": [0.0] * 15 + [1.0] * (people - 15)})  # 1.0 never counts
        try:
            told = eval(text).fill_null(False) & (x == 0)
            found.append(dp.private(df, session()).filter(told).count(epsilon=HUGE).item())
        except dp.DPError as error:
            found.append(type(error).__name__)
    print(name, *found)
"""


@pytest.mark.slow
def test_the_sign_of_a_zero_does_not_tell_how_many_rows_there_are():
    """zero_sign: 0.0 - x has another sign in a batch of one row, and bytes showed it for everybody else's rows.

    With 16 threads, up to 16 rows are read in batches of one row, and more rows are not.
    """
    done = run(SIGN, repr(SIGNS), threads=16, memory=16 << 30)
    assert done.status == 0, done.printed
    for line in done.printed.splitlines():
        *_, first, second, third, fourth = line.split(" ")
        assert first == second == third == fourth, line
        assert first in ("0", "15", "ExpressionNotAllowed"), line
    assert len(done.printed.splitlines()) == len(SIGNS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNS)
def test_one_person_does_not_turn_the_score_of_all_others(name):
    """zero_sign_select_best: equal rows are scored once, and whether there were one or two decided the sign for all."""
    found = []
    for alice in (False, True):
        df = pl.DataFrame({"user": range(1_000), "x": [0.0] * 999 + [1.0 if alice else 0.0]})
        told = eval(SIGNS[name], {"pl": pl, "x": pl.col("x")}).fill_null(False)

        def score(candidate, told=told):
            return pl.when(told == (candidate == 1)).then(1).otherwise(0)

        private = dp.private(df, session()).select("x")
        found.append(outcome(lambda private=private, score=score: private.select_best(
            list(range(40)), score, bounds=(0, 1), epsilon=HUGE).item() == 1))  # fmt: skip
    assert found[0] == found[1]


@pytest.mark.parametrize("amount", ["4", "4.5", "n/a"])
def test_no_line_of_a_scanned_text_file_decides_a_type(tmp_path, amount):
    """A free preview would show the type of the answer, and with it one person's amount."""
    csv, lines = tmp_path / "v.csv", tmp_path / "v.jsonl"
    csv.write_text(f"user,amount\n1,3\n2,{amount}\n")
    lines.write_text(f'{{"user": 1, "amount": 3}}\n{{"user": 2, "amount": "{amount}"}}\n')
    for frame in (pl.scan_csv(csv), pl.scan_csv(csv, schema_overrides={"user": pl.Int64}), pl.scan_ndjson(lines)):
        for asked in (frame, frame.filter(pl.col("user") > 0)):
            with pytest.raises(dp.InvalidParameterError, match="Declare the types"):
                asked.dp  # noqa: B018
    other = pl.DataFrame({"user": [1, 2]})
    hidden = [
        pl.scan_csv(csv).join(other.lazy(), on="user"),
        pl.concat([pl.scan_csv(csv).select("user"), other.clear().lazy()]),
        pl.scan_csv(csv).map_batches(lambda batch: batch, validate_output_schema=False),
    ]
    for frame in hidden:  # a plan that can't be read may hide a scan that infers types
        with pytest.raises(dp.InvalidParameterError, match=r"come after \.dp"):
            frame.dp  # noqa: B018
    declared = {"user": pl.Int64, "amount": pl.String}
    for frame in (pl.scan_csv(csv, schema=declared), pl.scan_csv(csv, infer_schema=False)):
        assert frame.dp.preview is not None
