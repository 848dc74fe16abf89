"""What reaches a user besides the answers: errors, copies, terminals and browsers."""

import copy
import inspect
import io
import json
import os
import pickle
import sys
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._cli import main, output
from dp_polars._display.text import escaped, escaped_frame
from dp_polars._session.releases import to_ipc

KEYS = ["\x1b[2J\x1b]0;owned\x07", "two\nlines\r", "\x9b31m", "\u202egnp.exe", "<b>bold</b>", "plain é 👨‍👩‍👧"]
OBEYED = "\x1b\x07\r\x9b\u202e"  # what none of these may pass on


def session(**words):
    return dp.Session(**{"epsilon": 1.0, "unit": "user", "max_rows_per_group": 1, "max_groups": 1, **words})


# ---------------------------------------------------------------------- prices and stored things


class Reset(dp.Cost):
    """A price that replaces every sum that it is part of."""

    def __add__(self, other):
        return self

    __radd__ = __add__

    def __mul__(self, times):
        return self


@pytest.mark.parametrize("call", ["reserve", "check", "can_afford", "affordable_count"])
def test_only_exact_costs_are_charged_and_added_up(call):
    paying = session()
    paying.reserve(dp.pure_cost(0.9), label="honest")
    cheat = Reset(epsilon=0.001, rho=0.001)
    words = {"label": "cheat"} if call == "reserve" else {}
    with pytest.raises(dp.InvalidParameterError, match=r"must be a dp\.Cost, got Reset"):
        getattr(paying, call)(cheat, **words)
    assert paying.spent.epsilon == 0.9
    assert dp.Cost.__add__(dp.pure_cost(0.5), cheat) is NotImplemented


def test_a_label_with_half_a_character_is_an_error_of_ours_before_the_charge():
    paying = session()
    with pytest.raises(dp.InvalidParameterError, match="surrogate"):
        paying.reserve(dp.pure_cost(0.1), label="half \ud800")
    assert paying.spent.epsilon == 0


def test_a_name_with_half_a_character_is_an_error_of_ours_before_the_charge():
    paying = session()
    frame = dp.private(pl.DataFrame({"user": range(9), "x": range(9)}), paying)
    for ask in (
        lambda: frame.group_by().agg(**{"half \ud800": dp.count()}, epsilon=0.1),
        lambda: frame.rename({"x": "half \ud800"}).count(epsilon=0.1),
        lambda: frame.arms(2, name="half \ud800").count(epsilon=0.1),
    ):
        with pytest.raises(dp.InvalidParameterError, match="surrogate"):
            ask()
    assert paying.spent.epsilon == 0


def test_a_key_without_a_name_keeps_it():
    """Polars names the columns of a list anew where they have no name, and two columns then had the same."""
    paying = session()
    frame = dp.private(pl.DataFrame({"user": range(9), "": ["a"] * 9, "column_0": [1] * 9}), paying)
    counted = frame.count(["", "column_0"], keys={"": ["a"], "column_0": [1]}, epsilon=0.5)
    assert counted.columns == ["", "column_0", "count"]
    assert paying.releases[0].frame.equals(counted)


@pytest.mark.parametrize("stored", [b"", b"ARROW1", b"\xff" * 1000, None])
def test_a_damaged_stored_frame_is_an_error_of_ours(stored):
    paying = session()
    answer = dp.private(pl.DataFrame({"user": range(9)}), paying).count_units(epsilon=0.5)
    whole = to_ipc(answer)
    damaged = whole[: len(whole) // 2] if stored is None else stored
    with paying._ledger._writing() as connection:
        connection.execute("UPDATE result SET frame = ?", (damaged,))
    for read in (lambda: paying.release(1).frame, lambda: paying.releases[0].frame, lambda: str(paying.releases[0])):
        with pytest.raises(dp.LedgerError, match="damaged"):
            read()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
@pytest.mark.parametrize("kind", ["frame", "lazy", "transformed", "preview", "groups"])
def test_nothing_that_holds_private_rows_is_copied(copied, kind):
    frame = pl.DataFrame({"user": range(9), "name": ["SECRET"] * 9})
    private = dp.private(frame.lazy() if kind == "lazy" else frame, session())
    held = {
        "transformed": lambda: private.filter(pl.col("name") != ""),
        "preview": lambda: private.preview,
        "groups": lambda: private.group_by("name"),
    }.get(kind, lambda: private)()
    with pytest.raises(dp.InvalidParameterError, match="can't be copied or pickled"):
        copied(held)


# ---------------------------------------------------------------------- terminals and browsers


def released():
    frame = pl.DataFrame({"user": range(6), "key\x1b": KEYS})
    paying = session(epsilon=10**6)
    asked = dp.private(frame, paying).count_units("key\x1b", keys=KEYS, epsilon=10**5)
    assert set(asked["key\x1b"]) == set(KEYS)  # data stay data
    return paying


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")
@pytest.mark.parametrize("view", ["str", "repr", "html", "describe", "session html", "plan", "plan html", "frame"])
def test_control_characters_of_keys_and_names_are_written_out_wherever_the_library_shows_them(view):
    paying = released()
    release = paying.releases[0]
    shown = {
        "str": lambda: str(release),
        "repr": lambda: repr(release),
        "html": release._repr_html_,
        "describe": paying.describe,
        "session html": paying._repr_html_,
        "plan": lambda: str(release.plan),
        "plan html": release.plan._repr_html_,
        "frame": lambda: repr(dp.private(pl.DataFrame({"user": [1], "key\x1b": [""]}))),
    }[view]()
    assert not set(OBEYED) & set(shown)
    if view in ("str", "html"):
        assert r"\x1b[2J" in shown
        assert r"two\nlines\r" in shown
        assert r"\u202egnp.exe" in shown
        assert "plain é 👨‍👩‍👧" in shown
    if "html" in view:
        assert "<b>bold" not in shown


NESTED = pl.DataFrame(
    {
        "enum": pl.Series(KEYS, dtype=pl.Enum(KEYS)),
        "category": pl.Series(KEYS, dtype=pl.Categorical),
        "list": [[key, None] for key in KEYS],
        "struct": [{"a": key, "b": [key]} for key in KEYS],
        "array": pl.Series([[key] for key in KEYS], dtype=pl.Array(pl.String, 1)),
        "number": range(6),
        "nothing": pl.Series([None] * 6, dtype=pl.String),
    }
)


@pytest.mark.parametrize("name", NESTED.columns)
def test_texts_inside_of_others_are_written_out_too(name):
    shown = escaped_frame(NESTED.select(name))
    assert not set(OBEYED) & set(str(shown.to_dicts()[0]) + str(shown))
    assert shown.height == 6
    if name == "number":
        assert shown.equals(NESTED.select(name))


def test_names_that_read_alike_are_still_two_columns():
    assert escaped_frame(pl.DataFrame({"\x1b": [1], "\\x1b": [2]})).rows() == [(1, 2)]


def test_every_control_character_is_written_out():
    signs = [chr(number) for number in range(0x3000) if chr(number) in "\t\n" or not chr(number).isprintable()]
    terminal = [sign for sign in signs if ord(sign) < 0xA0]
    assert len(terminal) == 65
    for sign in [*terminal, "\u2028", "\u202e", "\u2066", "\ud800"]:
        assert escaped(sign).isascii()
        assert escaped(sign).isprintable()


class Terminal(io.StringIO):
    """A terminal that remembers what was sent to it."""

    def __init__(self, *, terminal):
        super().__init__()
        self.buffer, self._terminal = io.BytesIO(), terminal

    def isatty(self):
        return self._terminal

    def fileno(self):
        raise OSError


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
@pytest.mark.parametrize("terminal", [True, False])
def test_the_command_line_escapes_for_a_terminal_and_hands_data_to_programs(form, terminal, monkeypatch):
    frame = pl.DataFrame({"key": KEYS, "n": range(6)})
    screen = Terminal(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    output.show(output.encoded(frame, form, 200), data=form != "table")
    sent = screen.buffer.getvalue()
    if terminal or form == "table":
        assert not set(OBEYED) & set(sent.decode())
        return
    read = {
        "csv": lambda: pl.read_csv(sent)["key"].to_list(),
        "json": lambda: [row["key"] for row in json.loads(sent)],
        "jsonl": lambda: [json.loads(line)["key"] for line in sent.decode().strip("\n").split("\n")],
    }[form]()
    assert read == KEYS


def test_a_message_of_the_command_line_is_written_out_too(tmp_path, capsys):
    pl.DataFrame({"user": [1]}).write_parquet(tmp_path / "v.parquet")
    words = ["sql", str(tmp_path / "v.parquet"), "--unit", "us\x1b[2Jer", "--epsilon", "1", "SELECT dp_count(*) FROM v"]
    assert main(words) != 0
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert r"us\x1b[2Jer" in told


# ---------------------------------------------------------------------- panics

PACKAGE = os.path.dirname(dp.__file__)
PUBLIC = pl.DataFrame({"region": ["a", "b"], "name": ["x", "y"]})
ROWS = pl.DataFrame({"user": range(20), "region": ["a", "b"] * 10, "value": [1.5] * 20, "n": range(20)})

CALLS = {
    "private": lambda f: f,
    "filter": lambda f: f.filter(pl.col("value") > 1, region="a"),
    "with_columns": lambda f: f.with_columns(x=pl.col("value") * 2, y=pl.col("region").replace("a", "b")),
    "select": lambda f: f.select("region", x=pl.col("region").is_in(["a"])),
    "drop": lambda f: f.drop("value"),
    "rename": lambda f: f.rename({"value": "v"}),
    "join": lambda f: f.join(PUBLIC, on="region"),
    "count": lambda f: f.count("region", keys=["a", "b"], epsilon=0.1),
    "discovered": lambda f: f.count_units("region", epsilon=0.1),
    "agg": lambda f: f.group_by("region").agg(
        n=dp.count(), m=dp.mean("value", bounds=(0, 2)), q=dp.median("value", bounds=(0, 2)), epsilon=0.1
    ),
    "histogram": lambda f: f.histogram("value", edges=[0, 1, 2], epsilon=0.1),
    "n_unique": lambda f: f.n_unique("region", epsilon=0.1),
    "estimated": lambda f: f.sum("value", bounds="auto", epsilon=0.2),
    "noisy_max": lambda f: f.noisy_max("region", ["a", "b"], epsilon=0.1),
    "select_best": lambda f: f.select_best([1, 2], lambda c: pl.col("value") * c, bounds=(0, 2), epsilon=0.1),
    "preview": lambda f: f.preview.count("region", epsilon=0.1),
    "preview of a stream": lambda f: f.preview.sparse_vector(5, epsilon=0.1),
    "stream": lambda f: f.sparse_vector(5, epsilon=0.1).ask(pl.col("value") > 1),
    "stream of a sum": lambda f: f.sparse_vector(5, of="units", epsilon=0.1).ask_many([dp.sum("value", bounds=(0, 2))]),
    "online": lambda f: f.online_queries({"region": ["a", "b"]}, alpha=0.2, max_updates=2, epsilon=0.1).ask(
        pl.col("region") == "a"
    ),
    "synthesize": lambda f: f.synthesize({"region": ["a", "b"]}, epsilon=0.1),
}


PACKAGE = str(Path(dp.__file__).parent)


class Panics:
    """Lets one call of Polars panic: the n-th that the library itself makes."""

    def __init__(self, monkeypatch):
        self.made, self.at = 0, None
        for owner in (pl.DataFrame, pl.LazyFrame, pl.Series):
            for name, method in inspect.getmembers(owner, inspect.isfunction):
                if not name.startswith("_") and name not in ("explain", "serialize"):
                    monkeypatch.setattr(owner, name, self._watched(method))

    def _watched(self, method):
        def called(*given, **words):
            if sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
                self.made += 1
                if self.made == self.at:
                    raise pl.exceptions.PanicException("SECRET")
            return method(*given, **words)

        return called


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::dp_polars.errors.DPWarning")
def test_a_panic_anywhere_inside_a_public_call_is_an_error_of_ours(name, monkeypatch):
    def call():
        return CALLS[name](dp.private(ROWS, session(delta=1e-6)))

    panics = Panics(monkeypatch)
    call()
    made = panics.made
    assert made
    # Of many calls some: all of the first ones, where a question is prepared, and a sample of the rest.
    for at in [*range(1, min(made, 25) + 1), *range(26, made + 1, max(1, made // 25))]:
        panics.made, panics.at = 0, at
        try:
            call()
        except dp.DPError as error:
            rehearsed = isinstance(error, dp.ExpressionNotAllowed)  # on made-up rows, of which Polars may speak
            assert rehearsed or "SECRET" not in str(error)  # noqa: PT017
            assert "SECRET" not in str(error.__context__)  # noqa: PT017
