"""Codes that are kept with a frame in memory change how fast a question is answered, and nothing else."""

import gc
import itertools
import secrets
import threading
import zlib

import numpy as np
import polars as pl
import pytest
from polars.io.plugins import register_io_source

import dp_polars as dp
from dp_polars._engines.polars import codes, engine, growing_codes, held_frame, known_columns, read_once
from dp_polars._engines.polars.engine import run_bounded
from dp_polars._engines.polars.scan import polars_rows
from dp_polars._engines.request import BoundedRequest, Cells, GroupSum, Lane, Profile, ValueColumn
from dp_polars._engines.workers import Workers
from dp_polars._expressions import Column, Constant, apply

ROWS = 3000
TEXTS = pl.Series([None, "", "a", "b", "zebra", "a longer text than twelve bytes", "ä", "Ä"])
COLUMNS = {
    "text": TEXTS,
    "category": TEXTS.cast(pl.Categorical),
    "enumeration": pl.Series(["b", "a", None, "c"], dtype=pl.Enum(["d", "c", "b", "a"])),
    "number": pl.Series([None, -5, 0, 1, 2, 70_000]),
    "small": pl.Series([1, 2, None], dtype=pl.UInt8),
    "far": pl.Series([-(2**62), 2**62, 0, None]),
    "day": pl.Series([0, 1, 400], dtype=pl.Int32).cast(pl.Date),
    "flag": pl.Series([True, False, None]),
    "float": pl.Series([0.0, -0.0, float("nan"), 1.5, None]),
}
LANES = (
    Lane(sums=(GroupSum(name="rows", of="rows", max_rows=3), GroupSum(name="units", of="units"))),
    Lane(columns=(ValueColumn(place=0, low=0, high=500),), cells=Cells(name="kept", max_rows=2)),
    Lane(profiles=(Profile(name="groups", of="groups", most=20),)),
)


def frame_of(seed=1, rows=ROWS):
    random = np.random.default_rng(seed)
    made = {name: values.gather(random.integers(0, len(values), rows)) for name, values in COLUMNS.items()}
    person = pl.Series([None, *range(-60, 60)]).gather(random.integers(0, 121, rows))
    return pl.DataFrame({**made, "person": person, "value": random.integers(0, 500, rows)})


def asked(rows, *keys, unit="person"):
    """Return rows with the columns of a request."""
    names = {"unit0": unit, **{f"key{place}": key for place, key in enumerate(keys)}, "value0": "value"}
    return rows.make({new: Column(old, rows.schema[old]) for new, old in names.items()}, keep=False)


def request(keys, **words):
    given = {"units": 1, "max_groups": 2, "domain": None, "lanes": LANES, **words}
    return BoundedRequest(keys=keys, **given)


def assert_nothing_changes(monkeypatch, rows, request):
    """Ask with and without codes, with the same salts."""
    answers = []
    for known in (True, True, False):
        # Each use has the same salt, in whichever order they are drawn.
        monkeypatch.setattr(codes.Salts, "of", lambda _, use: zlib.crc32(use.encode()) * 0x9E3779B1)
        if not known:
            monkeypatch.setattr(engine, "known_columns", lambda rows, *_: (rows, {}, {}))
            monkeypatch.setattr(read_once, "MOST_BYTES", 0)
        answers.append(run_bounded(rows, request))
        monkeypatch.undo()
    *found, expected = answers
    assert expected.groups["runs"].sum() > 0
    for one in found:
        assert one.groups.equals(expected.groups)
        assert one.groups.schema == expected.groups.schema
        for name, table in expected.cells.items():
            assert one.cells[name].equals(table)


STEPS = {
    "none": lambda rows: rows,
    "filter": lambda rows: rows.filter(apply("gt", Column("value", pl.Int64()), Constant(250, pl.Int64()))),
    "select": lambda rows: rows.keep(["person", "value", *COLUMNS]).keep(["value", "person", *COLUMNS]),
    "swap": lambda rows: rows.make({"text": Column("far", pl.Int64()), "far": Column("text", pl.String())}),
    "lookup": lambda rows: rows.lookup(
        pl.DataFrame({"k": ["a", "b", "zebra"], "own": ["x", "y", None]}),
        on=[("text", "k")],
        how="left",
        columns={"own": "looked_up"},
    ),
}


HELD, LAZY = frame_of(), frame_of().lazy()


@pytest.mark.parametrize("frame", [HELD, LAZY], ids=["held", "lazy"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("key", COLUMNS)
def test_keys_of_all_types_after_all_kinds_of_steps(monkeypatch, key, step, frame):
    rows = STEPS[step](polars_rows(frame))
    assert_nothing_changes(monkeypatch, asked(rows, key), request(1))


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(["text", "enumeration", "number", "float"], 2)])
@pytest.mark.parametrize(("capped", "frame"), [(None, HELD), (1, LAZY)], ids=["held", "lazy"])
def test_pairs_of_keys(monkeypatch, first, second, capped, frame):
    assert_nothing_changes(monkeypatch, asked(polars_rows(frame), first, second), request(2, capped_keys=capped))


@pytest.mark.parametrize("keys", [("text",), ("category",), ("enumeration",), ("text", "number"), ("text", "category")])
@pytest.mark.parametrize("capped", [None, 1])
@pytest.mark.parametrize("source", [HELD, LAZY], ids=["held", "lazy"])
def test_public_keys_of_which_some_do_not_occur(monkeypatch, keys, capped, source):
    frame = HELD
    names = {f"key{place}": key for place, key in enumerate(keys)}
    domain = frame.select(**names).unique().sort(list(names))[1:]
    if keys[0] == "text":
        more = domain.head(2).with_columns(key0=pl.Series(["absent", "missing too"]))
        domain = pl.concat([domain, more])
    given = request(len(keys), domain=domain, capped_keys=capped if len(keys) > 1 else None)
    assert_nothing_changes(monkeypatch, asked(polars_rows(source), *keys), given)


@pytest.mark.parametrize("keys", [("text", "shout"), ("shout", "category"), ("number", "shout", "text")])
@pytest.mark.parametrize("step", ["none", "filter"])
def test_keys_of_the_frame_beside_computed_ones(monkeypatch, keys, step):
    rows = STEPS[step](polars_rows(frame_of()))
    rows = rows.make({"shout": apply("upper", Column("text", pl.String()))})
    assert_nothing_changes(monkeypatch, asked(rows, *keys), request(len(keys)))


def test_a_looked_up_column_is_not_one_of_the_frame(monkeypatch):
    rows = STEPS["lookup"](polars_rows(frame_of()))
    assert_nothing_changes(monkeypatch, asked(rows, "looked_up"), request(1))


def test_values_that_come_late_get_codes_too(monkeypatch):
    """The first batch has one value, the second another, and null comes last."""
    monkeypatch.setattr(known_columns, "BATCH", 100)
    values = ["b"] * 100 + ["a"] * 100 + [f"v{i}" for i in range(300)] + [None] * 10
    frame = pl.DataFrame({"text": values, "person": range(510), "value": 1})
    column = known_columns._coded(frame["text"])
    assert column.values.to_list() == sorted(set(values), key=lambda one: (one is not None, one))
    assert column.values.gather(column.codes).to_list() == values
    assert_nothing_changes(monkeypatch, asked(polars_rows(frame), "text"), request(1, max_groups=None))


@pytest.mark.parametrize("values", [[], [None], ["a"], [None, None], [f"{i}" for i in range(70_000)]])
def test_columns_with_few_or_many_values(values):
    column = known_columns._coded(pl.Series("text", values, dtype=pl.String))
    assert column.values.gather(column.codes).to_list() == values
    assert column.values.is_sorted()


def test_two_values_with_the_same_hash_are_told_apart(monkeypatch):
    rows = asked(polars_rows(frame_of()), "text")
    expected = run_bounded(rows, request(1, max_groups=None)).groups
    monkeypatch.setattr(
        growing_codes, "hashed", lambda name, dtype, salts: pl.lit(7, dtype=pl.UInt64).alias(codes.hash_name(name))
    )
    again = asked(polars_rows(frame_of()), "text")
    assert known_columns.codes_of_column(again.source.held, "text") is None
    assert run_bounded(again, request(1, max_groups=None)).groups.equals(expected)


# ---------------------------------------------------------------------- what is kept, and for how long


@pytest.fixture
def session():
    with pytest.warns(dp.DPWarning):
        return dp.Session(epsilon=1000.0, unit="person", max_groups=1, max_rows_per_group=1)


def shop():
    return pl.DataFrame({"person": range(1000), "city": ["a", "b"] * 500})


def count(frame, session, keys=("a", "b", "c")):
    found = frame.dp.count("city", keys=list(keys), epsilon=30, session=session, fresh=True)
    return dict(found.iter_rows())


def test_codes_of_all_rows_are_found_for_the_second_question_about_some_of_them(monkeypatch, session):
    frame, read = shop(), []
    honest = known_columns._coded
    monkeypatch.setattr(known_columns, "_coded", lambda column: read.append(column.name) or honest(column))
    for expected in ([], ["city"], ["city"]):
        some = frame.dp.filter(pl.col("person") < 400)
        found = some.count("city", keys=["a", "b", "c"], epsilon=30, session=session, fresh=True)
        assert found["count"].to_list() == pytest.approx([200, 200, 0], abs=10)
        assert read == expected


def test_texts_are_read_once_while_the_frame_is_held(monkeypatch, session):
    frame, read = shop(), []
    honest = known_columns._coded
    monkeypatch.setattr(known_columns, "_coded", lambda column: read.append(column.name) or honest(column))
    for _ in range(3):
        assert count(frame, session)["a"] == pytest.approx(500, abs=10)  # beyond 10 with a probability below 1e-12
    assert read == ["city"]


CHANGES = {
    "replace": lambda frame: frame.replace_column(1, pl.Series("city", ["c"] * 1000)),
    "assign": lambda frame: frame.__setitem__((list(range(1000)), "city"), "c"),
    "drop and insert": lambda frame: (
        frame.drop_in_place("city"),
        frame.insert_column(1, pl.Series("city", ["c"] * 1000)),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_frame_that_was_changed_in_place_is_read_again(session, change):
    frame = shop()
    kept = frame.dp
    count(frame, session)
    CHANGES[change](frame)
    assert count(frame, session)["c"] == pytest.approx(1000, abs=10)
    # A private frame has the rows of the moment when it was made.
    found = kept.count("city", keys=["a", "b", "c"], epsilon=30, session=session, fresh=True)
    assert found["count"][0] == pytest.approx(500, abs=10)


def test_rows_that_are_added_in_place_are_counted(session):
    frame = shop()
    count(frame, session)
    frame.extend(pl.DataFrame({"person": range(1000, 2000), "city": ["c"] * 1000}))
    assert count(frame, session)["c"] == pytest.approx(1000, abs=10)


def test_units_beyond_the_known_range_are_counted(session):
    frame = shop()
    count(frame, session)
    frame.replace_column(0, pl.Series("person", range(-(10**6), 10**6, 2000)))
    assert count(frame, session)["a"] == pytest.approx(500, abs=10)


def test_what_is_kept_has_a_limit_and_ends_with_the_frame(monkeypatch, session):
    frame = shop().with_columns(town=pl.col("city").reverse())
    count(frame, session)
    facts = held_frame._FACTS[id(frame)][1]
    assert set(facts.known) == {"city"}
    monkeypatch.setattr(held_frame, "MOST_BYTES", 1100)
    frame.dp.count("town", keys=["a"], epsilon=30, session=session, fresh=True)
    assert set(facts.known) == {"town"}
    assert count(frame, session)["a"] == pytest.approx(500, abs=10)
    frame.drop_in_place("city")
    frame.dp.count("town", keys=["a"], epsilon=30, session=session, fresh=True)
    assert set(facts.known) == {"town"}  # a dropped column is forgotten
    number = id(frame)
    del frame
    gc.collect()
    assert number not in held_frame._FACTS


def test_nothing_of_it_is_shown():
    frame = shop()
    shown = repr(polars_rows(frame).source.held) + repr(frame.dp)
    assert "1000" not in shown
    assert "a frame in memory" in shown


# ---------------------------------------------------------------------- rows that are read once


def lazy_source(frame, reads):
    """Return a plan that counts how often it is read."""

    def rows(with_columns, predicate, n_rows, batch_size):
        reads.append(with_columns)
        yield from frame.select(with_columns or frame.columns).iter_slices(200)

    return register_io_source(rows, schema=frame.schema)


def test_rows_of_a_plan_are_read_once_if_they_are_few(monkeypatch):
    reads = []
    rows = asked(polars_rows(lazy_source(HELD, reads)), "text")
    scanned = run_bounded(rows, request(1, max_groups=None))
    few = len(reads)  # one of them counts the rows
    reads.clear()
    monkeypatch.setattr(read_once, "MOST_BYTES", 0)
    again = run_bounded(rows, request(1, max_groups=None))
    assert scanned.groups.equals(again.groups)
    assert few < len(reads)


@pytest.mark.parametrize("words", [["a", None, "b"], ["a", "b", "a longer text than twelve bytes"]])
@pytest.mark.parametrize("unique", [True, False])
def test_rows_that_are_read_once_may_become_more_or_fewer(monkeypatch, words, unique):
    """Long texts are first met in the last batch. Each row finds none, one, or with `unique` at most one public row."""
    person = pl.Series([None, 1, 2, 3])
    frame = pl.DataFrame(
        {
            "text": pl.Series([*words[:2] * 400, *words * 100]),
            "person": person.gather(np.arange(1100) % 4),
            "number": np.arange(1100) % 5,
            "value": np.arange(1100) % 400,
        }
    )
    public = pl.DataFrame(
        {"k": [0, 1, 2] if unique else [0, 0, 0, 1, 3], "n": [1, 2, 3] if unique else [1, 2, 3, 4, 5]}
    )
    rows = polars_rows(lazy_source(frame, []))
    rows = rows.lookup(public, on=[("number", "k")], how="inner", columns={"n": "n"}, unique=unique)
    rows = asked(rows, "text", "n")
    once = read_once._read
    done = []
    monkeypatch.setattr(read_once, "_read", lambda *given: done.append(once(*given)) or done[-1])
    found = run_bounded(rows, request(2, max_groups=None))
    assert len(done) == 1  # a long text ends the first reading
    monkeypatch.setattr(read_once, "MOST_BYTES", 0)
    assert found.groups.equals(run_bounded(rows, request(2, max_groups=None)).groups)
    expected = frame.join(public, left_on="number", right_on="k").filter(pl.col("person").is_not_null())
    assert found.groups["units"].sum() == expected.select("person", "text", "n").n_unique()
    assert done[0].frame.height == frame.join(public, left_on="number", right_on="k").height


def test_a_column_with_too_many_values_is_read_twice(monkeypatch):
    values = [f"value {i}" for i in range(3000)]
    frame = pl.DataFrame({"text": values, "person": range(3000), "value": 1})
    monkeypatch.setattr(growing_codes, "MOST_VALUES", 100)
    for source in (frame, frame.lazy()):
        found = run_bounded(asked(polars_rows(source), "text"), request(1, max_groups=None))
        assert found.groups["key0"].to_list() == sorted(values)


def test_threads_that_learn_values_at_the_same_time_agree():
    """Every batch has new values and old ones, and 4 threads learn them."""
    batches = [pl.Series("text", [f"v{i % 997}" for i in range(start, start + 400)]) for start in range(0, 40_000, 100)]
    growing = growing_codes.GrowingCodes("text", pl.String(), codes.Salts(lambda: 5))
    found = [None] * len(batches)

    def work(place):
        found[place] = growing.numbers(batches[place].to_frame().select(growing.columns))

    Workers(4).each(range(len(batches)), work)
    values, places = growing.in_order()
    assert len(values) == 997
    for batch, numbers in zip(batches, found, strict=True):
        assert values.gather(places.take(numbers)).equals(batch)


# ---------------------------------------------------------------------- races, and memory that changes behind our back


def test_threads_hash_a_column_with_one_salt():
    """With two salts every value would have two codes. Salts are drawn here as in a release, by 4 threads at once."""
    column = pl.Series("text", ["a", "b"] * 500)
    batch = column.to_frame()
    for _ in range(300):
        salts = codes.Salts(lambda: secrets.randbits(64))
        start, drawn = threading.Barrier(4), []

        def draw(salts=salts, start=start, drawn=drawn):
            start.wait()
            drawn.append(salts.of("text"))

        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(drawn)) == 1
    growing = growing_codes.GrowingCodes("text", pl.String(), codes.Salts(lambda: secrets.randbits(64)))
    hashes = [batch.select(growing.columns) for _ in range(2)]
    assert hashes[0].equals(hashes[1])


def test_many_batches_have_each_value_once(monkeypatch):
    monkeypatch.setattr(known_columns, "BATCH", 64)
    column = pl.Series("text", [None, "a", "b", "c"] * 2000)
    for _ in range(40):
        found = known_columns._coded(column)
        assert found.values.to_list() == [None, "a", "b", "c"]


def test_a_number_that_another_thread_added_later_stands_for_nothing():
    """After the table was rebuilt, a newer hash may have the slot of an older one."""
    first, later = pl.Series("text", ["a", "b"]), pl.Series("text", [f"later {i}" for i in range(3000)])
    for seed in range(20):
        growing = growing_codes.GrowingCodes("text", pl.String(), codes.Salts(lambda seed=seed: seed))
        growing.numbers(first.to_frame().select(growing.columns))
        known = growing._known
        growing.numbers(later.to_frame().select(growing.columns))
        numbers = known.numbers(pl.concat([later, first]).to_frame().select(growing.columns))
        assert set(numbers[: len(later)].tolist()) == {-1}
        assert known.decode(numbers[len(later) :]).equals(first)
        # Every number beyond the dictionary is refused, even where the row has the dictionary's last value.
        last = pl.Series("text", ["b"] * 3)
        assert not known._stands_for(np.array([2, 7, -1], np.int32), last).any()


def test_null_in_other_rows_is_another_column(session):
    """`when` shares the values but has its own nulls; in a slice, Polars copies them to hand them over."""
    whole = pl.DataFrame({"person": range(20_001), "city": (["a", "b", "c"] * 7000)[:20_001]})
    frame = whole.slice(1)
    raw = frame["city"].to_frame()
    for cut in (2, 5, 9, 14):
        part = pl.int_range(pl.len()) % cut == 0
        frame.replace_column(1, raw.select(pl.when(part).then("city").alias("city")).to_series())
        expected = dict(frame.drop_nulls().group_by("city").len().iter_rows())
        found = count(frame, session)
        assert all(abs(found[key] - expected.get(key, 0)) < 10 for key in "abc")


def test_a_private_frame_never_mixes_two_states_of_its_frame(session):
    frame = pl.DataFrame({"person": [*range(5000, 6000), 10**6], "city": ["a"] * 1001})
    private = frame.dp
    frame.replace_column(0, pl.Series("person", range(1001)))
    frame.replace_column(1, pl.Series("city", ["b"] * 1001))
    found = private.count("city", keys=["a", "b"], epsilon=30, session=session, fresh=True)
    assert found["count"].to_list() == pytest.approx([1001, 0], abs=10)
    frame.drop_in_place("city")
    found = private.count("city", keys=["a", "b"], epsilon=30, session=session, fresh=True)
    assert found["count"].to_list() == pytest.approx([1001, 0], abs=10)


def test_integers_that_numpy_writes_to_are_counted(session):
    ids = np.array([*range(1000), 10**6])
    frame = pl.DataFrame({"person": ids, "city": ["a"] * 1001})
    count(frame, session)
    ids[:1000] -= 5000
    assert count(frame, session)["a"] == pytest.approx(1001, abs=10)


# ---------------------------------------------------------------------- stored releases of frames that change


def asked_again(frame, session):
    return frame.dp.count("city", keys=["a", "b", "c"], epsilon=20, session=session)["count"].to_list()


@pytest.mark.parametrize("change", CHANGES)
def test_a_stored_release_is_not_returned_for_a_frame_that_was_changed_in_place(session, change):
    frame = shop()
    first = asked_again(frame, session)
    kept = frame.dp
    assert asked_again(frame, session) == first
    CHANGES[change](frame)
    assert asked_again(frame, session) == pytest.approx([0, 0, 1000], abs=10)
    assert asked_again(frame, session) == asked_again(frame, session)
    # A private frame has the rows, and the stored releases, of the moment when it was made.
    assert kept.count("city", keys=["a", "b", "c"], epsilon=20, session=session)["count"].to_list() == first
    assert len(session.releases) == 2


def test_a_frame_that_is_registered_again_after_a_change_is_another_source(session):
    frame, asked = shop(), "SELECT dp_count(*, epsilon := 20) AS n FROM shop WHERE city = 'c'"
    con = dp.connect(None, session)
    con.register("shop", frame)
    assert con.sql(asked).fetchall()[0][0] == pytest.approx(0, abs=10)
    frame.replace_column(1, pl.Series("city", ["c"] * 1000))
    con.register("shop", frame)
    assert con.sql(asked).fetchall()[0][0] == pytest.approx(1000, abs=10)


SHAPES = {
    "whole": lambda frame: frame,
    "slice": lambda frame: frame.slice(3, 900),
    "slice with nulls": lambda frame: frame.with_columns(
        pl.when(pl.col("person") % 7 > 0).then("city").alias("city"), missing=pl.lit(None, dtype=pl.Int64)
    ).slice(5),
    "chunks": lambda frame: pl.concat([frame, frame.with_columns(pl.col("person") + 1000)], rechunk=False),
    "filtered": lambda frame: frame.filter(pl.col("person") > 10),
    "all types": lambda frame: frame.hstack(frame_of(rows=1000).drop("person", "value")).with_columns(
        wide=pl.lit(1, dtype=pl.Int128), money=pl.lit(1, dtype=pl.Decimal(20, 2)), listed=pl.lit([1, 2])
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_that_did_not_change_is_the_same_source(session, shape):
    frame = SHAPES[shape](shop())
    first = asked_again(frame, session)
    for _ in range(3):
        assert asked_again(frame, session) == first
    assert len(session.releases) == 1
    frame.with_columns(pl.lit(1).alias("more"))  # makes another frame
    assert asked_again(frame, session) == first
