"""Polars expressions as Python texts: the public methods of `pl.Expr`, allowed and not, with hostile arguments."""

_KINDS = {
    "number": ["i8", "i16", "i32", "i64", "u8", "u64", "i128", "f32", "f64", "deci", "wide"],
    "text": ["t", "note", "mood", "cat"],
    "truth": ["b"],
    "date": ["d", "ts", "tns", "tz"],
    "span": ["du"],
    "list": ["li", "lt", "ar"],
    "other": ["tm", "s", "bin_", "nothing"],
}
_CONSTANTS = {
    "number": ["0", "1", "-1", "2.5", "-0.0", "2**63", "2**63 - 1", "-2**63", "1e308", "float('nan')", "float('inf')", "255",
               "Decimal('1.10')", "2**127", "None", "True", "1e-320"],
    "text": ["''", "'a'", "'é'", "'('", "'(?i)a'", "'$1'", "'[a'", "'x' * 5000", "'\\x00'", "'2024-02-30'", "'.*'", "None",
             "'a{1000}'", "'${1}'", "'(a+)+b'"],
    "truth": ["True", "False", "None"],
    "date": ["date(2024, 2, 29)", "datetime(2020, 3, 29, 2, 30)", "date(1, 1, 1)", "date(9999, 12, 31)", "None"],
    "span": ["timedelta(days=1)", "timedelta(microseconds=-1)", "timedelta.max", "None"],
    "list": ["[1, 2, None]", "[]", "['a']", "[1, 2.5]", "[None]", "[True]"],
    "other": ["time(1, 2)", "None", "b'x'"],
}  # fmt: skip
_TYPES = ["pl.Int8", "pl.Int64", "pl.UInt8", "pl.UInt64", "pl.Int128", "pl.Float32", "pl.Float64", "pl.String", "pl.Boolean",
          "pl.Date", "pl.Time", "pl.Datetime('us')", "pl.Datetime('ms', 'UTC')", "pl.Duration('ns')", "pl.Decimal(10, 2)",
          "pl.Decimal(38, 38)", "pl.Categorical", "pl.Enum(['a', 'b'])", "pl.List(pl.Int8)", "pl.Binary", "pl.Null",
          "pl.Struct({'a': pl.Int8})", "pl.Array(pl.Int64, 2)", "pl.Object", "pl.Float16", "pl.UInt128"]  # fmt: skip
_FORMATS = ["'%Y-%m-%d'", "'%'", "'%H:%M'", "'%s'", "'%d/%m/%y'", "'%Y-%m-%d %H:%M:%S%.f'", "'%Q'", "None", "''"]
_TOLERANCES = ["0.1", "0", "float('inf')"]
_DATE_TYPES = ["pl.Date", "'x'", "pl.Datetime('ns')", "pl.Datetime('us', 'Europe/Paris')"]
_EVERY = ["'1d'", "'1mo'", "'1y'", "'0d'", "'-1h'", "'1h'", "'3w'", "'x'", "'99999999999y'", "'1mo2d'", "'1q'", "'1i'"]
_FORBIDDEN = [
    "{0}.sum()", "{0}.mean()", "{0}.max()", "{0}.shift(1)", "{0}.cum_sum()", "{0}.rank()", "{0}.sort()", "{0}.over('b')",
    "{0}.rolling_mean(2)", "{0}.shuffle()", "{0}.sample(1)", "{0}.hash()", "{0}.unique()", "{0}.is_duplicated()", "{0}.first()",
    "{0}.filter(pl.col('b'))", "{0}.map_elements(lambda x: x)", "{0}.map_batches(lambda x: x)", "{0}.fill_null(strategy='forward')",
    "{0}.to_physical()", "{0}.explode()", "{0}.gather([0])", "{0}.head(1)", "{0}.slice(1, 1)", "{0}.implode()", "{0}.count()", "pl.len()",
    "{0}.is_in({1})", "{0}.is_in(pl.col('li'))", "pl.lit(pl.Series([1, 2]))", "pl.int_range(pl.len())", "pl.arange(0, 3)",
    "{0}.reinterpret()", "{0}.qcut(2)", "{0}.cut([0])", "{0}.replace({{1: 2}})", "{0}.replace_strict({{1: 2}}, default=0)",
    "pl.struct({0}, {1})", "pl.concat_list({0}, {1})", "pl.col('^i.*$')", "pl.all()", "pl.col('i8', 'i16')", "pl.nth(0)",
    "pl.col('nosuch')", "pl.element()", "pl.concat_arr({0})", "{0}.repeat_by(3)", "{0}.repeat_by({1})", "{0}.diff()", "{0}.mode()",
    "{0}.search_sorted(1)", "{0}.append({1})", "{0}.reverse()", "{0}.interpolate()", "{0}.peak_max()", "{0}.arg_sort()",
    "{0}.list.sort()", "{0}.list.eval(pl.element() + 1)", "{0}.list.get({1})", "{0}.str.json_decode(pl.Int64)", "{0}.str.explode()",
    "{0}.cat.get_categories()", "{0}.bin.size()", "{0}.bitwise_and()", "{0}.entropy()", "{0}.dot({1})", "{0}.set_sorted()",
    "{0}.inspect()", "{0}.rle()", "{0}.value_counts()", "{0}.approx_n_unique()", "pl.corr({0}, {1})", "pl.coalesce({0}, pl.col('i8').sum())",
    "{0}.name.suffix('x')", "{0}.name.map(str.upper)", "{0}.alias('uid')", "{0}.alias('')", "{0}.alias('^x$')", "{0}.rechunk()",
    "pl.date(2024, {0}, 1)", "pl.duration(days={0})", "pl.format('{{}}', {0})", "{0}.str.to_integer()", "{0}.str.strip_chars({1})",
    "{0}.lower_bound()", "{0}.extend_constant(1, 3)", "{0}.new_columns()", "{0}.str.extract_groups('(a)')", "{0}.index_of(1)",
    "pl.when({0}).then({1})", "pl.sql_expr('i8 + 1')", "pl.sql_expr('max(i8)')", "{0}.backward_fill()", "{0}.limit(1)", "{0}.item()",
    "{0}.clip({1}, {1})", "{0}.cast(pl.String).str.contains({1})", "{0}.dt.offset_by({1})", "{0}.ewm_mean(alpha=0.5)",
]  # fmt: skip


def expression(dice, kind="any", depth=3):
    """Return the text of an expression of a kind, sometimes of another."""
    if dice.happens(2):
        return dice.choice(_FORBIDDEN).format(expression(dice, "any", 0), expression(dice, "any", 0))
    if kind == "any" or dice.happens(2):
        kind = dice.usually(["number", "text", "date"], [*_KINDS])
    if depth <= 0 or dice.random() < 0.15:
        return _leaf(dice, kind)
    return _MAKERS.get(kind, _other)(dice, depth - 1)


def _leaf(dice, kind):
    if dice.random() < 0.2:
        return f"pl.lit({dice.usually(_CONSTANTS[kind][:4], _CONSTANTS[kind])})"
    return f"pl.col({dice.choice(_KINDS[kind])!r})"


def _number(dice, depth):
    def x(kind="number"):
        return expression(dice, kind, depth)

    def c(kind="number"):
        return dice.usually(_CONSTANTS[kind][:4], _CONSTANTS[kind])

    sign = dice.choice(["+", "-", "*", "/", "//", "%", "**", "&", "|", "^"])
    plain = "abs sign floor ceil sqrt cbrt exp log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians"
    part = "year month day weekday week quarter ordinal_day iso_year hour minute second nanosecond century millennium is_leap_year epoch timestamp"
    return dice.choice([
        lambda: f"({x()} {sign} {x()})",
        lambda: f"({x()} {sign} {c()})",
        lambda: f"({c()} {sign} {x()})",
        lambda: f"{x()}.{dice.choice(plain.split())}()",
        lambda: f"(-{x()})",
        lambda: f"{x('any')}.cast({dice.usually(_TYPES[:12], _TYPES)}{dice.choice(['', ', strict=False', ', wrap_numerical=True'])})",
        lambda: f"{x()}.round({dice.choice(['0', '2', '400', '-1'])})",
        lambda: f"{x()}.round_sig_figs({dice.choice(['1', '0', '400'])})",
        lambda: f"{x()}.log({c()})",
        lambda: f"{x()}.clip({c()}, {c()})",
        lambda: f"{x()}.fill_null({c()})",
        lambda: f"{x()}.fill_nan({c()})",
        lambda: f"pl.when({x('truth')}).then({x()}).otherwise({x()})",
        lambda: f"pl.{dice.choice(['max', 'min', 'sum', 'mean'])}_horizontal({x()}, {x()})",
        lambda: f"pl.coalesce({x()}, {x()})",
        lambda: f"pl.arctan2({x()}, {x()})",
        lambda: f"{x('text')}.str.{dice.choice(['len_chars', 'len_bytes', 'to_integer', 'to_decimal'])}({dice.choice(['', 'strict=False'])})",
        lambda: f"{x('text')}.str.count_matches({c('text')})",
        lambda: f"{x('text')}.str.find({c('text')})",
        lambda: f"{x('list')}.list.{dice.choice(['len', 'sum', 'min', 'max', 'mean', 'first', 'n_unique'])}()",
        lambda: f"{x('list')}.list.get({dice.choice(['0', '-1', '99', '2**40'])}, null_on_oob={dice.choice(['True', 'False'])})",
        lambda: f"{x('list')}.arr.{dice.choice(['sum', 'max', 'len'])}()",
        lambda: f"{x('date')}.dt.{dice.choice(part.split())}()",
        lambda: f"{x('span')}.dt.total_{dice.choice(['days', 'seconds', 'nanoseconds', 'hours'])}()",
        lambda: f"{x('other')}.struct.field({dice.choice(['a', 'b', 'nosuch', '*', '^a$'])!r})",
        lambda: f"{x()}.replace_strict([1, 2], [3, 4], default={c()})",
        lambda: f"{x()}.replace({{0: {c()}}})",
        lambda: f"{x()}.bitwise_count_ones()",
        lambda: f"{x()}.pow({x()})",
        lambda: f"{x()}.truediv({x()})",
        lambda: f"{x()}.shrink_dtype()",
    ])()  # fmt: skip


def _text(dice, depth):
    def x(kind="text"):
        return expression(dice, kind, depth)

    def c(kind="text"):
        return dice.usually(_CONSTANTS[kind][:4], _CONSTANTS[kind])

    n = dice.choice(["0", "1", "-1", "5", "2**31", "2**62", "None"])
    return dice.choice([
        lambda: f"{x()}.str.{dice.choice(['to_lowercase', 'to_uppercase', 'to_titlecase', 'reverse', 'strip_chars', 'normalize'])}()",
        lambda: f"({x()} + {x()})",
        lambda: f"{x()}.str.slice({n}, {dice.choice(['1', '0', 'None', '2**40'])})",
        lambda: f"{x()}.str.{dice.choice(['head', 'tail', 'zfill'])}({n})",
        lambda: f"{x()}.str.pad_{dice.choice(['start', 'end'])}({n}, {c()})",
        lambda: f"{x()}.str.{dice.choice(['replace', 'replace_all'])}({c()}, {c()}{dice.choice(['', ', literal=True', ', n=2'])})",
        lambda: f"{x()}.str.{dice.choice(['strip_chars', 'strip_chars_start', 'strip_prefix', 'strip_suffix'])}({c()})",
        lambda: f"{x()}.str.extract({c()}, {dice.choice(['0', '1', '9'])})",
        lambda: f"{x('any')}.cast(pl.String)",
        lambda: f"{x('date')}.dt.strftime({dice.choice(_FORMATS)})",
        lambda: f"pl.concat_str({x()}, {x('any')}, separator={c()}, ignore_nulls={dice.choice(['True', 'False'])})",
        lambda: f"{x('list')}.list.join({c()})",
        lambda: f"{x()}.str.split({c()}).list.get({n})",
        lambda: f"{x()}.str.replace_many(['a', 'b'], ['c', {c()}])",
        lambda: f"{x()}.replace({{'a': 'b'}})",
        lambda: f"pl.when({x('truth')}).then({x()}).otherwise({x()})",
        lambda: f"{x()}.fill_null({c()})",
        lambda: f"{x()}.str.{dice.choice(['escape_regex', 'encode', 'decode'])}({dice.choice(['', repr('hex'), repr('base64')])})",
    ])()  # fmt: skip


def _truth(dice, depth):
    kind = dice.usually(["number", "number", "text", "date", "span"], [*_KINDS])

    def x(kind):
        return expression(dice, kind, depth)

    sign = dice.choice(["==", "!=", "<", "<=", ">", ">="])
    constant = dice.choice(_CONSTANTS[kind])
    text = dice.choice(_CONSTANTS["text"])
    return dice.choice([
        lambda: f"({x(kind)} {sign} {x(kind)})",
        lambda: f"({x(kind)} {sign} {constant})",
        lambda: f"{x(kind)}.{dice.choice(['eq_missing', 'ne_missing'])}({x(kind)})",
        lambda: f"({x('truth')} {dice.choice(['&', '|', '^'])} {x('truth')})",
        lambda: f"(~{x('truth')})",
        lambda: f"{x(kind)}.{dice.choice(['is_null', 'is_not_null', 'is_nan', 'is_finite', 'is_infinite', 'is_not_nan'])}()",
        lambda: f"{x(kind)}.is_in([{constant}, {dice.choice(_CONSTANTS[kind])}]{dice.choice(['', ', nulls_equal=True'])})",
        lambda: f"{x(kind)}.is_between({constant}, {x(kind)}, closed={dice.choice(['both', 'none'])!r})",
        lambda: f"{x('number')}.is_close({x('number')}, abs_tol={dice.choice(_TOLERANCES)})",
        lambda: f"{x('text')}.str.contains({text}{dice.choice(['', ', literal=True', ', strict=False'])})",
        lambda: f"{x('text')}.str.{dice.choice(['starts_with', 'ends_with'])}({dice.choice([text, x('text')])})",
        lambda: f"{x('text')}.str.contains_any(['a', 'b'])",
        lambda: f"{x('list')}.list.contains({dice.choice(_CONSTANTS['number'])})",
        lambda: f"pl.{dice.choice(['any', 'all'])}_horizontal({x('truth')}, {x('truth')})",
        lambda: f"{x('date')}.dt.is_leap_year()",
    ])()  # fmt: skip


def _date(dice, depth):
    def x(kind="date"):
        return expression(dice, kind, depth)

    unit = dice.choice(["'ms'", "'us'", "'ns'"])
    return dice.choice([
        lambda: f"({x()} {dice.choice(['+', '-'])} {x('span')})",
        lambda: f"{x()}.dt.offset_by({dice.choice(_EVERY)})",
        lambda: f"{x()}.dt.{dice.choice(['truncate', 'round'])}({dice.choice(_EVERY)})",
        lambda: f"{x()}.dt.{dice.choice(['date', 'time', 'month_start', 'month_end', 'datetime'])}()",
        lambda: f"{x('text')}.str.{dice.choice(['to_date', 'to_datetime', 'to_time'])}({dice.choice(_FORMATS)}, strict={dice.choice(['True', 'False'])})",
        lambda: f"{x('any')}.cast({dice.choice(_DATE_TYPES)})",
        lambda: f"{x()}.dt.{dice.choice(['cast_time_unit', 'with_time_unit'])}({unit})",
        lambda: f"{x()}.dt.{dice.choice(['convert_time_zone', 'replace_time_zone'])}({dice.choice(['UTC', 'Europe/Paris', 'No/Where'])!r})",
        lambda: f"pl.from_epoch({x('number')}, time_unit={dice.choice(['s', 'ms', 'd', 'ns'])!r})",
        lambda: f"pl.datetime({x('number')}, 1, 1)",
        lambda: f"pl.when({x('truth')}).then({x()}).otherwise({x()})",
        lambda: f"{x()}.dt.combine(time(1, 2))",
        lambda: f"{x()}.dt.replace(year=2024, day={dice.choice(['31', '0', '1'])})",
        lambda: f"pl.max_horizontal({x()}, {x()})",
    ])()  # fmt: skip


def _span(dice, depth):
    def x(kind="span"):
        return expression(dice, kind, depth)

    return dice.choice([
        lambda: f"({x('date')} - {x('date')})",
        lambda: f"({x()} {dice.choice(['+', '-'])} {x()})",
        lambda: f"({x()} {dice.choice(['*', '/', '//'])} {x('number')})",
        lambda: f"pl.duration({dice.choice(['days', 'weeks', 'nanoseconds'])}={x('number')})",
        lambda: f"{x('number')}.cast(pl.Duration('us'))",
        lambda: f"{x()}.abs()",
        lambda: f"(-{x()})",
    ])()  # fmt: skip


def _list(dice, depth):
    return dice.choice([
        lambda: f"{expression(dice, 'text', depth)}.str.split({dice.choice(_CONSTANTS['text'])})",
        lambda: f"{expression(dice, 'list', depth)}.list.{dice.choice(['sort', 'reverse', 'unique', 'drop_nulls'])}()",
        lambda: f"{expression(dice, 'list', depth)}.list.slice(0, 2)",
        lambda: f"{expression(dice, 'list', depth)}.arr.to_list()",
        lambda: _leaf(dice, "list"),
    ])()  # fmt: skip


def _other(dice, depth):
    deep = dice.choice([20, 90, 150])
    return dice.choice([
        lambda: _leaf(dice, "other"),
        lambda: f"{expression(dice, 'any', depth)}.cast({dice.usually(_TYPES[:12], _TYPES)}, strict=False)",
        lambda: "(" * deep + _leaf(dice, "number") + " + 1)" * deep,
        lambda: f"{_leaf(dice, 'text')}" + ".str.replace_all('a', 'aa')" * min(deep, 15),
        lambda: f"{expression(dice, 'any', depth)}.alias('x').name.to_uppercase()",
    ])()  # fmt: skip


_MAKERS = {"number": _number, "text": _text, "truth": _truth, "date": _date, "span": _span, "list": _list}
