"""Whole pipelines of a private frame in Python: steps, and a question at the end.

A case has the expressions apart, so that what Polars itself refuses to build is told from what the library refuses.
"""

from tests.fuzz.grammar_polars import expression

_COLUMNS = [
    "b",
    "mood",
    "i64",
    "f64",
    "money",
    "t",
    "note",
    "i8",
    "deci",
    "d",
    "ts",
    "u64",
    "cat",
    "li",
    "s",
    "uid",
    "nosuch",
]
_VALUES = [
    "i64",
    "f64",
    "money",
    "i8",
    "deci",
    "u64",
    "i16",
    "x",
    "wide",
    "d",
    "t",
    "b",
    "uid",
    "s",
    "nothing",
    "li",
    "du",
]
_KEYS = ["'b'", "'mood'", "['b', 'mood']", "'t'", "'note'", "'zone'", "'x'", "'i8'", "'cat'", "'d'", "'uid'", "['b', 'b']", "'s'",
         "'li'", "[]", "'f64'", "pl.col('i64') % 3", "pl.col('uid') % 2", "cs.boolean()", "'nosuch'"]  # fmt: skip
_PUBLIC_KEYS = {
    "'b'": ["[True, False]", "[True]", "[None, True]", "[1]", "pl.Series([True])"],
    "'mood'": ["['sad', 'ok']", "['sad', None]", "['nosuch']", "pl.Series(['sad'])"],
    "['b', 'mood']": ["{'b': [True, False], 'mood': ['sad', 'ok']}", "pl.DataFrame({'b': [True], 'mood': ['sad']})",
                      "[(True, 'sad')]", "{'b': [True]}"],
    "'t'": ["['a', 'b']", "['', '\\0([']", "[]"],
    "'note'": ["['a', None]", "['a'] * 2"],
    "'i8'": ["[1, 2, 3]", "range(5)", "[-128, 127]", "[128]", "[1.5]"],
    "pl.col('i64') % 3": ["[0, 1, 2]", "[None]", "[2**70]"],
}  # fmt: skip
_BOUNDS = ["(0, 100)", "(-10, 10)", "(0, 1)", "(0.5, 7.25)", "(777000, 778000)", "(-1e9, 1e9)", "(5, 1)", "(0, 'a')", "None", "'auto'",
           "(0, 1e300)", "(date(2020, 1, 1), date(2021, 1, 1))", "(float('nan'), 1)", "(1, 1)", "0", "(Decimal('0.1'), 3)",
           "(0, 2**63)", "(timedelta(0), timedelta(9))"]  # fmt: skip
_USUAL = ["confidence=0.9", "nonnegative=True", "max_groups=2", "max_rows_per_group=1", "min_units=3", "cut=True", "fresh=True",
          "label='x'", "max_rows_per_group=40", "mechanism='laplace'", "rollup=True", "delta=1e-15", "max_groups='auto'",
          "max_rows_per_group='auto'"]  # fmt: skip
_ODD = ["confidence=2", "max_groups=0", "max_rows_per_group=-1", "min_units='a'", "fresh=1", "label=7", "mechanism='none'", "seed=1",
        "epsilon=1", "if_rows=100", "delta=2", "share=0.001", "within=5", "keys=['a']", "weight=2", "rollup=None", "session=None",
        "confidence=float('nan')", "max_groups=2**40", "label='\\ud800'", "max_rows_per_group=True", "interval='value'"]  # fmt: skip
_SPENDS = ["epsilon=5e-6"] * 20 + ["share=0.004", "epsilon=8e-6", "within=1e9, confidence=0.95"]
_ODD_SPENDS = [
    "epsilon=-1",
    "epsilon='a'",
    "epsilon=None",
    "rho=1e-14",
    "epsilon=0",
    "epsilon=5e-6, share=0.1",
    "epsilon=1e-300",
    "share=0",
]
_CASTS = ["{'i64': pl.Float64}", "{'f64': pl.Int64}", "{'t': pl.Int64}", "{'d': pl.String, 'i8': pl.Boolean}", "{pl.Int64: pl.Int8}",
          "pl.String", "{cs.numeric(): pl.Float32}", "{'mood': pl.String}", "{'t': pl.Enum(['a'])}", "{'uid': pl.String}", "{'i64': 'a'}",
          "{'nosuch': pl.Int8}", "{'deci': pl.Decimal(38, 30)}", "pl.Int8", "{'ts': pl.Date}", "{'note': pl.Categorical}",
          "{'li': pl.List(pl.Int8)}", "{'f64': pl.Datetime('ns')}", "pl.Binary"]  # fmt: skip
_FILLS = ["0", "'a'", "1.5", "True", "date(2024, 1, 1)", "strategy='zero'", "strategy='forward'", "2**70", "None", "float('nan')",
          "0, matches_supertype=False", "Decimal('1.5')", "timedelta(1)", "b'a'", "strategy='max'", "pl.col('i8')"]  # fmt: skip
_JOINS = ["lookup, left_on='i64', right_on='k'", "places, on='mood'", "lookup, on='i64'", "texts.lazy(), left_on='note', right_on='mood'",
          "texts, on='mood'", "lookup.lazy(), left_on='i8', right_on='k'", "twice, left_on='i64', right_on='k'", "no_rows, on='i64'",
          "lookup, left_on='f64', right_on='k'", "lookup, left_on='uid', right_on='k'", "lookup.rename({'name': 'uid'}), on='i64'",
          "lookup, on='nosuch'", "texts, left_on='t', right_on='mood'", "texts, left_on='cat', right_on='mood'", "frame, on='uid'",
          "lookup, left_on=['i64', 'i8'], right_on=['k', 'i64']", "places, on='mood', suffix=''", "lookup, left_on='x', right_on='k'"]  # fmt: skip
_RENAMES = ["{'t': 'text'}", "{'note': 'zone'}", "{'i16': 'x'}", "{'t': 'note'}", "{'uid': 'u'}", "{'t': 'uid'}", "{'nosuch': 'x'}",
            "{'t': 'note', 'note': 't'}", "{'t': '^x$'}", "{'t': ''}", "{'t': 'T', 'note': 't'}", "{'t': '\\0x'}", "{'f64': 'F32'}"]  # fmt: skip
_SUBSETS = [
    "'f64'",
    "['t', 'd']",
    "",
    "cs.numeric()",
    "'mood'",
    "['b']",
    "'nosuch'",
    "pl.col('i8') + 1",
    "7",
    "[]",
    "pl.col('^i.*$')",
]


_SIMPLE = {
    "truth": [
        "pl.col('b')",
        "pl.col('i64') > 3",
        "pl.col('mood') == 'ok'",
        "pl.col('f64').is_nan()",
        "pl.col('t').is_null()",
        "pl.col('note').str.contains('1')",
        "pl.col('d') > date(2024, 5, 1)",
        "pl.col('i8').is_in([1, 2])",
    ],
    "number": [
        "pl.col('i64') + 1",
        "pl.col('f64') * 2",
        "pl.col('i8') // 3",
        "pl.col('f64').abs()",
        "pl.col('deci').cast(pl.Float64)",
        "pl.col('t').str.len_chars()",
        "pl.col('d').dt.year()",
        "pl.when(pl.col('b')).then(1).otherwise(0)",
        "pl.col('u64') % 7",
        "pl.col('i64').clip(0, 9)",
        "pl.col('f32').round(1)",
        "pl.col('s').struct.field('a')",
    ],
    "text": [
        "pl.col('t').str.to_lowercase()",
        "pl.col('note').str.slice(0, 3)",
        "pl.col('mood').cast(pl.String)",
        "pl.col('t') + '-'",
    ],
}
"""Expressions that people write, in the place of half of those that the grammar of expressions makes."""


class _Case:
    """A case in the making: its text, and the expressions that the text refers to."""

    def __init__(self, dice):
        self.dice, self.expressions = dice, []

    def expression(self, kind="any", depth=2):
        """Return the place of a new expression."""
        simple = _SIMPLE.get(kind, [one for known in _SIMPLE.values() for one in known])
        usual = self.dice.random() < 0.5
        self.expressions.append(self.dice.choice(simple) if usual else expression(self.dice, kind, depth))
        return f"e[{len(self.expressions) - 1}]"

    def usually(self, choices, number):
        """Return one of the first choices, or something hostile."""
        return self.dice.usually(choices[:number], choices)

    def value(self):
        """Return a column to aggregate, by name or as an expression."""
        if self.dice.random() < 0.3:
            return self.expression(self.dice.usually(["number"], ["any", "text", "date", "span"]), 2)
        return repr(self.usually(_VALUES, 7))


def pipeline(dice):
    """Return the steps and the question of a pipeline as texts, its expressions, and whether the frame is lazy."""
    case = _Case(dice)
    steps = "".join(_step(case) for _ in range(dice.choice([0, 1, 1, 2, 2, 3, 5])))
    question = _question(case)
    if "interval='value'" in question and "confidence=" not in question and not dice.happens(5):
        question = f"{question[:-1]}, confidence=0.9)"
    return {"steps": steps, "question": question, "expressions": case.expressions, "lazy": dice.random() < 0.3}


_KEPT = ".select('uid', 'b', 'mood', 'i64', 'f64', 'money', 'i8', 'deci', 't', 'note', 'd', 'ts', 'u64')"
_WITHIN = [
    ".with_columns(i64=pl.col('i64').cum_sum().over('uid', order_by='d'))",
    ".with_columns(f64=pl.col('f64').cum_sum().over('uid', order_by=['i64', 'money']))",
    ".with_columns(x=pl.col('wide').sum().over('uid', 'b'))",
    ".with_columns(x=pl.col('f64').rolling_mean_by('d', '9d').over('uid'))",
    ".with_columns(x=pl.col('i64').diff().over('uid', order_by='ts'))",
    ".with_columns(x=pl.col('money').rank('dense').over('uid'))",
    ".rolling('d', period='30d', group_by=['uid', 'b', 'mood']).agg(i64=pl.len(), f64=pl.col('f64').sum())",
    ".group_by('uid', 'b', 'mood').agg(i64=pl.len(), f64=pl.col('f64').sum(), t=pl.col('t').sort_by('i64').first())",
    ".group_by('uid', 'b').agg(f64=pl.col('f64').std(), i8=pl.col('i8').median(), i64=pl.col('i64').sum())",
    ".group_by('uid').head(2, order_by=['d', 'i64'])",
    ".unique(['uid', 'b', 'mood'])",
    ".pipe(lambda f: f.join(f.select('uid', 'i64', x='money'), on=['uid', 'i64'], how='left'))",
    ".pipe(lambda f: f.join(f.filter(pl.col('b')), on='uid', how='anti'))",
    ".pipe(lambda f: dp.concat([f, f.filter(pl.col('b'))]))",
    ".arms(3, salt='a', name='x')",
    ".sessions('ts', gap='2d', name='i8')",
    ".retention('d', period='1w', periods=3)",
]
_ACROSS = [
    ".with_columns(x=pl.col('i64').sum().over('b'))",
    ".unique(['b'])",
    ".group_by('b').head(2, order_by='i64')",
    ".rolling('d', period='3d', group_by='mood').agg(i64=pl.len())",
    ".with_columns(x=pl.col('f64').cum_sum().over('uid'))",
    ".arms(0)",
]


def _step(case):
    dice, e = case.dice, case.expression
    return dice.choice([
        lambda: f"{dice.choice(['', _KEPT])}{dice.usually(_WITHIN, _ACROSS)}",
        lambda: f"{_KEPT}{dice.usually(_WITHIN, _ACROSS)}",
        lambda: f".filter({e('truth', 3)})",
        lambda: f".filter({e('truth', 2)}, {e('truth', 2)})",
        lambda: f".filter({e('truth', 2)}, {case.usually(['b=True', 'mood=' + repr('ok'), 'i64=None', 'f64=' + repr('a'), 'nosuch=1'], 2)})",
        lambda: f".with_columns(x={e()})",
        lambda: f".with_columns({e()}.alias('y'), x={e('number')})",
        lambda: f".with_columns({e()})",
        lambda: f".with_columns({case.usually(['i64', 'zone', 'X', 'uid', 'mood', '^x$'], 2)}={e()})".replace("^x$", "**{'^x$': 1}, z"),
        lambda: f".select('b', 'mood', 'i64', 'f64', 'money', x={e()})",
        lambda: f".select({', '.join(repr(case.usually(_COLUMNS, 11)) for _ in range(6))}, x={e()})",
        lambda: f".select({dice.usually(['pl.all()', 'cs.numeric()', 'pl.exclude(' + repr('t') + ')'], ['cs.string()', '7', 'cs.last()'])})",
        lambda: f".rename({case.usually(_RENAMES, 3)})",
        lambda: f".drop({dice.usually([repr('t'), repr('note') + ', ' + repr('li')], [repr('uid'), repr('nosuch'), '7'])})",
        lambda: f".drop_nulls({case.usually(_SUBSETS, 6)})",
        lambda: f".fill_null({case.usually(_FILLS, 6)})",
        lambda: f".fill_null({e('any', 1)})" if dice.happens(5) else ".fill_null(0)",
        lambda: f".cast({case.usually(_CASTS, 8)})",
        lambda: f".join({case.usually(_JOINS, 4)}, how={dice.usually(['inner', 'left', 'semi', 'anti'], ['outer', 'cross', 'full'])!r})",
        lambda: f".join({case.usually(_JOINS, 4)})",
        lambda: f".unnest({dice.usually([repr('s') + ', separator=' + repr('_')], ['', repr('s'), repr('b')])})",
    ])()  # fmt: skip


def _options(case, by=None, *, some=_USUAL):
    dice = case.dice
    words = dice.usually(_SPENDS, _ODD_SPENDS).split(", ")
    if by in _PUBLIC_KEYS and dice.random() < 0.6:
        words.append(f"keys={case.usually(_PUBLIC_KEYS[by], 2)}")
    for _ in range(dice.choice([0, 0, 1, 1, 2])):
        words.append(dice.usually(some, [*_USUAL, *_ODD]))
    named = {word.split("=")[0]: word for word in reversed(words)}  # the same option twice is no Python
    return ", ".join(reversed(named.values()))


def _by(case):
    if case.dice.random() < 0.15:
        return case.expression("any", 2)
    return case.usually(_KEYS, 10)


def _call(case):
    """Return an aggregate with its arguments but without keys and options."""
    dice = case.dice
    bounds = case.usually(_BOUNDS, 6)
    plain = dice.choice(["sum", "mean", "var", "std", "median", "min", "max"])
    return dice.choice([
        lambda: ("count", ""),
        lambda: ("count", f"column={case.value()}"),
        lambda: ("count_units", ""),
        lambda: ("n_unique", case.value()),
        lambda: (plain, f"{case.value()}, bounds={bounds}"),
        lambda: (plain, f"{case.value()}, bounds={bounds}"),
        lambda: ("sum", f"{case.value()}, bounds={bounds}, per='unit'"),
        lambda: ("geometric_mean", f"{case.value()}, bounds={dice.usually(['(1, 100)', '(0.5, 7.25)'], _BOUNDS)}"),
        lambda: ("quantile", f"{case.value()}, {dice.usually(['0.5', '[0.1, 0.9]'], ['2', 'None', '[]'])}, bounds={bounds}"),
        lambda: ("median", f"{case.value()}, bounds={bounds}, interval='value'"),
        lambda: ("histogram", f"{case.value()}, {dice.usually(['edges=[0, 3, 6]', 'bins=3, bounds=(0, 9)'], ['edges=[3, 1]', 'bins=0', 'edges=[]'])}"),
        lambda: (dice.choice(["cov", "corr", "linear_regression"]), f"{case.value()}, {case.value()}, bounds=({bounds}, (0, 9))"),
    ])()  # fmt: skip


def _question(case):
    dice = case.dice
    chance = dice.random()
    if chance < 0.4:
        name, arguments = _call(case)
        by = _by(case) if dice.random() < 0.5 else None
        given = [arguments, f"by={by}" if by else "", _options(case, by)]
        return f".{name}({', '.join(filter(None, given))})"
    if chance < 0.7:
        keys = _by(case) if dice.random() < 0.7 else ""
        calls = [_call(case) for _ in range(dice.choice([1, 2, 2, 3, 4]))]
        asked = [
            f"{one}=dp.{name}({given.replace('column=', '')})"
            for one, (name, given) in zip("nmoq", calls, strict=False)
        ]
        return f".group_by({keys}).agg({', '.join([*asked, _options(case, keys or None)])})"
    if chance < 0.9:
        return _choice(case)
    by = f"by={_by(case)}, " if dice.random() < 0.4 else ""
    listed = ", ".join(case.value() for _ in range(dice.choice([0, 1, 2, 3])))
    return f".profile({by}columns=[{listed}], {_options(case, some=['fresh=True', 'label=' + repr('x')])})"


def _choice(case):
    dice = case.dice
    some = ["max_rows_per_group=1", "max_rows_per_group=40", "fresh=True", "label='x'", "max_groups=2"]
    column = dice.usually(
        ["'mood'", "'t'", "'b'", "'i8'", "'note'"], ["'nosuch'", "'uid'", "'li'", "'f64'", case.expression("text", 2)]
    )
    known = {
        "'mood'": "['sad', 'ok']",
        "'b'": "[True, False]",
        "'i8'": "[1, 2, 300]",
        "'t'": "['a', 'b']",
        "'note'": "['a', None]",
    }
    candidates = known.get(column, "['a']") if dice.random() < 0.7 else dice.usually(["None"], ["[]", "7", "[[1]]"])
    score = dice.usually(
        ["'rows'", "'units'", "dp.sum('i64', bounds=(0, 9))"],
        ["'none'", "dp.mean('i64')", "dp.sum('t', bounds=(0, 1))"],
    )
    by = _by(case) if dice.random() < 0.25 else None
    options = ", ".join(filter(None, [f"score={score}", f"by={by}" if by else "", _options(case, by, some=some)]))
    name = dice.choice(["noisy_max", "noisy_min"])
    ours = f"pl.when({case.expression('truth', 1)}).then(c).otherwise(pl.col('i8') - c)"
    return dice.choice([
        lambda: f".{name}({column}, {candidates}, {options})",
        lambda: f".top_k({column}, {dice.usually(['1', '2'], ['0', '99', 'None'])}, {candidates}, {options})",
        lambda: f".select_best([1, 2, 5], lambda c: {dice.choice(['-(pl.col(' + repr('i64') + ') - c).abs()', ours])}, "
                f"bounds={case.usually(_BOUNDS, 6)}, {_options(case, some=some[:4])})",
    ])()  # fmt: skip
