"""`Tool`: a function that a model may call, with the JSON Schema that it is shown. What it does is the function's own.

`@tool` makes the schema from type hints and docstring. Whatever a model sends is checked against it first: the function
is called with the right names, types and lengths, or not at all, and the model is told what is allowed.
"""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
import json
import re
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast, get_type_hints, overload

MAX_TEXT = 64_000
"""Characters in one text argument, unless the schema says otherwise, and in a result: as much as a note can hold."""
NO_OUTPUT = "(no output)"
"""What a model is told when a tool returns None or blank text: servers refuse an empty tool message."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what OpenAI takes as a function's name
_MOST_SHOWN = 200  # characters of what the model sent, in what it is told about it


NeedsApproval = bool | Literal["after_untrusted"] | Callable[[dict[str, Any]], bool]


class Answer(str):
    """What a tool may return where a program listens too: the text that a model reads, with the same as plain data."""

    data: Mapping[str, Any]

    def __new__(cls, text: str, data: Mapping[str, Any]) -> Self:
        answer = super().__new__(cls, text)
        answer.data = data
        return answer


@dataclass(frozen=True)
class Tool:
    """What a model may call.

    `parameters`: a JSON Schema of type object. `function`: called with the arguments by name, sync or async; it may
    return text, None, or anything that JSON can hold, and may raise: the loop reports it to the model.
    `needs_approval`: whether a person must agree first: True, "after_untrusted" (once the model has read the result of
    an untrusted tool in this conversation), or a callable that is given the arguments. `untrusted`: its results hold
    text that others wrote, such as mail, pages or saved notes.

    Raises `ValueError` for a name that servers refuse or a schema that is not one of an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    needs_approval: NeedsApproval = False
    untrusted: bool = False
    annotations: Mapping[str, str | bool] = field(default_factory=dict[str, "str | bool"], kw_only=True)
    _model: Any = field(default=None, repr=False, compare=False)
    """The pydantic model that `tool` made: it also turns what came into the types of the hints."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a tool's name has 1 to 64 letters, digits, _ and -, which {self.name!r} has not")
        if isinstance(self.needs_approval, str) and self.needs_approval != "after_untrusted":  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError(f"needs_approval of {self.name} is {self.needs_approval!r}, not 'after_untrusted'")
        if self.parameters.get("type") != "object":
            raise ValueError(f"the parameters of {self.name} must be a JSON Schema with type 'object'")
        closed: dict[str, Any] = {"properties": {}, **self.parameters, "additionalProperties": False}
        object.__setattr__(self, "parameters", _bounded(closed))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it had never been made a tool."""
        return self.function(*args, **kwargs)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as a chat request holds it."""
        about = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": about}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises `ValueError` with the field and what is allowed."""
        known: dict[str, Any] = self.parameters["properties"]
        faults = [f"no argument {_shown(name)} is known" for name in arguments if name not in known]
        if not faults:
            faults = _faults(dict(arguments), self.parameters, self.parameters, "") if self._model is None else []
        values = dict(arguments)
        if not faults and self._model is not None:
            values, faults = self._converted(arguments)
        if faults:
            raise ValueError(f"{self.name}: {'; '.join(faults[:5])}. {self.takes()}")
        return values

    def _converted(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        import pydantic

        try:
            made = self._model.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            told = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors()]
            return {}, told
        fields: dict[str, Any] = self._model.model_fields
        # What was not sent is left to the function's own default.
        values = {about.alias: getattr(made, name) for name, about in fields.items() if name in made.model_fields_set}
        # Texts inside nested models do not know the bound that the schema states.
        return values, _faults(dict(arguments), self.parameters, self.parameters, "", lengths_only=True)

    def takes(self) -> str:
        """What it takes, in words: for the model that got it wrong."""
        known: dict[str, Any] = self.parameters["properties"]
        required = self.parameters.get("required", ())
        told = [f"{name} ({_kind(about)}{', required' if name in required else ''})" for name, about in known.items()]
        return f"{self.name} takes {', '.join(told)}." if told else f"{self.name} takes no arguments."

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Check, call, and give the result as text. Raises `ValueError` from `check`, and what the function raises."""
        return self.call(self.check(arguments))

    def call(self, values: Mapping[str, Any]) -> str:
        """Call the function with arguments that `check` has passed."""
        return as_text(self.result(values))

    def result(self, values: Mapping[str, Any]) -> Any:
        """What the function itself gives, with arguments that `check` has passed."""
        result = self.function(**values)
        return awaited(result) if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    untrusted: bool = False,
    annotations: Mapping[str, str | bool] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: NeedsApproval = False,
    untrusted: bool = False,
    annotations: Mapping[str, str | bool] | None = None,
) -> Any:
    """Make a function a `Tool`: `@tool`, or `@tool(needs_approval=True)`.

    The description is the docstring; a line `name: text` in it (or under `Args:`, or `:param name: text`) describes a
    parameter. Hints may be anything that pydantic knows, with `Literal` for a choice and `Annotated[..., Field(...)]`
    for bounds. Text is bounded to 64,000 characters unless the hint says otherwise.

    Raises `TypeError` for a parameter without a hint or a name.
    """
    if function is None:
        return lambda inner: tool(  # pyright: ignore[reportCallIssue, reportUnknownLambdaType, reportUnknownVariableType]
            inner,
            name=name,
            description=description,
            needs_approval=needs_approval,
            untrusted=untrusted,
            annotations=annotations,
        )
    called = name or getattr(function, "__name__", type(function).__name__)
    told, about = _docstring(inspect.getdoc(function) or "", list(inspect.signature(function).parameters))
    model, schema = _schema(function, called, about)
    words = told if description is None else description
    told = words or called.replace("_", " ")
    return Tool(called, told, schema, function, needs_approval, untrusted, model, annotations=annotations or {})


def _schema(function: Callable[..., Any], name: str, about: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    import pydantic

    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(
            target, localns=inspect.getclosurevars(inspect.unwrap(target)).nonlocals, include_extras=True
        )
    except NameError as error:
        raise TypeError(f"a hint of {name} cannot be resolved ({error}): define it at the top of its module") from None
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise TypeError(f"{name}: the model gives arguments by name, so {parameter} cannot be filled")
        if parameter.name not in hints:
            raise TypeError(
                f"{name}: parameter {parameter.name!r} needs a type hint, for the model to know what to give"
            )
        hint = hints[parameter.name]
        texts = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, str)]
        described = next(
            (item.description for item in getattr(hint, "__metadata__", ()) if getattr(item, "description", None)), None
        )
        words = described or (texts[0] if texts else about.get(parameter.name))
        default = ... if parameter.default is parameter.empty else parameter.default
        # The alias is the real name: pydantic has methods of its own on every model ("json", "copy", ...).
        settings: dict[str, Any] = {"alias": parameter.name} | ({"description": words} if words else {})
        fields[f"p{number}"] = (hint, pydantic.Field(default, **settings))
    config = pydantic.ConfigDict(extra="forbid", str_max_length=MAX_TEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a default that JSON cannot hold: the schema is right without it
        model = pydantic.create_model("Arguments", __config__=config, **fields)
        schema: dict[str, Any] = model.model_json_schema()
    return model, _untitled(schema)


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic gives: they are the names again, and are paid for with every request."""
    if isinstance(schema, list):
        return [_untitled(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    told: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in {"properties", "$defs"}:
            told[key] = {name: _untitled(item) for name, item in value.items()}
        elif key in {"default", "enum", "const", "examples"}:
            told[key] = value
        elif key != "title" or not isinstance(value, str):
            told[key] = _untitled(value)
    return told


def _bounded(schema: Any) -> Any:
    """With a `maxLength` on every text that has no bound of its own."""
    if isinstance(schema, list):
        return [_bounded(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    told: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in {"properties", "$defs"}:
            told[key] = {name: _bounded(item) for name, item in value.items()}
        else:
            told[key] = value if key in {"default", "enum", "const", "examples", "required"} else _bounded(value)
    if told.get("type") == "string" and not {"maxLength", "enum", "const", "format"} & told.keys():
        told["maxLength"] = MAX_TEXT
    return told


_SECTION = re.compile(r"(args|arguments|parameters|params)\s*:?\s*$", re.I)
_REST = re.compile(r"(returns|raises|yields|examples?|notes?)\s*:\s*$|:(return|returns|rtype|raises)\b", re.I)


def _docstring(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """The description, and the words about each parameter: Google's style, `:param x:`, or plain `x: words`."""
    told: list[str] = []
    about: dict[str, str] = {}
    line_about = (
        re.compile(rf"[-*]?\s*(?::param\s+)?`?({'|'.join(map(re.escape, names))})`?\s*(?:\([^)]*\))?:\s+(\S.*)")
        if names
        else None
    )
    last, indent = "", 0
    for line in text.splitlines():
        bare, deep = line.strip(), len(line) - len(line.lstrip())
        found = line_about.match(bare) if line_about else None
        if found:
            last, indent = found[1], deep
            about[last] = found[2].strip()
        elif last and bare and deep > indent:
            about[last] += f" {bare}"
        elif _REST.match(bare):
            break
        elif not _SECTION.fullmatch(bare):
            last = ""
            told.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(told)).strip(), about


# -- checking against a schema that was written by hand ---------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and kind == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _faults(
    value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str, lengths_only: bool = False
) -> list[str]:
    """What is wrong with a value: the parts of JSON Schema that tools use. What it does not know, it lets pass."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _faults(value, root.get("$defs", {}).get(name, {}), root, at, lengths_only)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            tried = [_faults(value, each, root, at, lengths_only) for each in schema[several]]
            return [] if [] in tried else min(tried, key=len)
    where = at or "arguments"
    kinds: list[str] = [schema["type"]] if isinstance(schema.get("type"), str) else list(schema.get("type") or ())
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [] if lengths_only else [f"{where}: {_shown(value)} is not {' or '.join(kinds)}"]
    faults: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"{where}: {_shown(value)} is not one of {_shown(schema['enum'])}")
    if "const" in schema and value != schema["const"]:
        faults.append(f"{where}: {_shown(value)} is not {_shown(schema['const'])}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            faults.append(f"{where}: {_shown(value)} is below {schema['minimum']}")
        if value > schema.get("maximum", value):
            faults.append(f"{where}: {_shown(value)} is above {schema['maximum']}")
    if lengths_only:
        faults = []
    if isinstance(value, str):
        faults += _length_faults(where, len(value), "characters", schema.get("minLength"), schema.get("maxLength"))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        faults += _length_faults(where, len(items), "items", schema.get("minItems"), schema.get("maxItems"))
        for number, item in enumerate(items):
            faults += _faults(item, schema.get("items") or {}, root, f"{at}[{number}]", lengths_only)
    elif isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        known: Mapping[str, Any] = schema.get("properties", {})
        dot = f"{at}." if at else ""
        faults += [
            f"{dot}{name} is missing" for name in schema.get("required", ()) if name not in parts and not lengths_only
        ]
        for name, item in parts.items():
            if name in known:
                faults += _faults(item, known[name], root, f"{dot}{name}", lengths_only)
            elif schema.get("additionalProperties") is False and not lengths_only:
                faults.append(f"{dot}{_shown(name)} is not known")
    return faults


def _length_faults(where: str, length: int, unit: str, least: int | None, most: int | None) -> list[str]:
    if most is not None and length > most:
        return [f"{where}: {length:,} {unit}, {most:,} are allowed"]
    if least is not None and length < least:
        return [f"{where}: {length:,} {unit}, at least {least:,} are needed"]
    return []


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    kind = schema.get("type", "object" if "$ref" in schema else "any value")
    return kind if isinstance(kind, str) else " or ".join(kind)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


# -- results ----------------------------------------------------------------------------------------------------------


def clean_text(text: str) -> str:
    """Text as every server takes it: half a surrogate pair becomes U+FFFD, NUL a space.

    One bad character would otherwise make a server refuse every later request of the conversation.
    """
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", " ")


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than `most` characters, and how much is missing."""
    if len(text) <= most:
        return text
    mark = f" … [{len(text) - most:,} of {len(text):,} characters left out] … "
    tail = most // 4
    return text[: most - tail] + mark + text[len(text) - tail :] if tail else text[:most] + mark


def as_text(result: Any) -> str:
    """A tool's result as the model is given it: text as it is, anything else as JSON; cleaned, capped, never empty."""
    if result is None:
        return NO_OUTPUT
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=_plain)
    return shortened(clean_text(text), MAX_TEXT) if text.strip() else NO_OUTPUT


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)  # pydantic's
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, set | frozenset | tuple):
        return list(cast("set[Any]", value))
    return str(value)


def awaited(result: Awaitable[Any]) -> Any:
    """Run an async tool to its end, on an event loop of its own: also where one is running already."""
    import asyncio

    async def whole() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(whole())
    box: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            box.append(asyncio.run(whole()))
        except BaseException as error:  # raised again by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="diarist-tool", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return box[0]
