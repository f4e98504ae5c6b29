"""What a model may call: the schema it is shown, what is let through, and what it is told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from diarist import Tool, tool
from diarist.tool import MAX_TEXT, NO_OUTPUT, as_text


class Address(BaseModel):
    street: str
    city: str = "Rosario"


@tool
def place_order(
    product: str,
    kg: Annotated[float, Field(gt=0, le=50, description="Kilograms.")] = 1,
    grind: Literal["moka", "filter"] = "moka",
    tags: list[str] | None = None,
    json: Annotated[str, "Any name will do."] = "",
) -> str:
    """Place an order.

    It is delivered within a week.

    Args:
        product: Which coffee,
            by its name.
        tags (list): What else it is.

    Returns:
        The order's number.
    """
    return f"{product} {kg} {grind} {tags} {json}"


class TestTheSchema:
    def test_r19_it_comes_from_hints_and_docstring(self):
        schema = place_order.schema
        assert (schema["type"], schema["function"]["name"]) == ("function", "place_order")
        assert schema["function"]["description"] == "Place an order.\n\nIt is delivered within a week."
        parameters = schema["function"]["parameters"]
        assert (parameters["type"], parameters["required"]) == ("object", ["product"])
        assert parameters["additionalProperties"] is False
        known = parameters["properties"]
        assert known["product"] == {
            "type": "string",
            "description": "Which coffee, by its name.",
            "maxLength": MAX_TEXT,
        }
        assert known["kg"]["description"] == "Kilograms."
        assert (known["kg"]["exclusiveMinimum"], known["kg"]["maximum"], known["kg"]["default"]) == (0, 50, 1)
        assert known["grind"] == {"type": "string", "enum": ["moka", "filter"], "default": "moka"}
        assert known["tags"]["anyOf"][0] == {"type": "array", "items": {"type": "string", "maxLength": MAX_TEXT}}
        assert known["json"]["description"] == "Any name will do."
        assert "title" not in json.dumps(parameters)

    def test_r19_docstrings_in_other_styles(self):
        @tool
        def sphinx(query: str, limit: int = 3) -> str:
            """Look it up.

            :param query: What to look for.
            :param limit: How many.
            :returns: Lines.
            """
            return query * limit

        @tool
        def plain(query: str, limit: int = 3) -> str:
            """Look it up. Note: it is slow.

            `query`: what to look for
            limit: how many
            """
            return query * limit

        for made, told in ((sphinx, "Look it up."), (plain, "Look it up. Note: it is slow.")):
            known = made.parameters["properties"]
            assert made.description == told
            assert [about["description"].lower().rstrip(".") for about in known.values()] == [
                "what to look for",
                "how many",
            ]

    def test_r19_bounds_of_its_own_are_kept(self):
        @tool
        def note(text: Annotated[str, Field(max_length=100_000)], word: Annotated[str, Field(max_length=3)]) -> str:
            return text[:2] + word

        assert [about["maxLength"] for about in note.parameters["properties"].values()] == [100_000, 3]
        assert note.run({"text": "x" * 70_000, "word": "abc"}) == "xxabc"
        with pytest.raises(ValueError, match=r"word.*3 characters"):
            note.run({"text": "x", "word": "abcd"})

    def test_a_tool_without_parameters_or_docstring(self):
        @tool(name="what_time", needs_approval=True)
        def now():
            return 12

        assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
        assert (now.name, now.description, now.needs_approval) == ("what_time", "what time", True)
        assert now.run({}) == "12"

    def test_it_is_still_the_function(self):
        assert place_order("Colombia", kg=2) == "Colombia 2 moka None "

    def test_methods_and_callable_objects(self):
        class Shop:
            def order(self, product: str) -> str:
                return f"{product} from {self.name}"

            def __call__(self, product: str) -> str:
                return f"called for {product}"

            name = "the shop"

        assert tool(Shop().order).run({"product": "tea"}) == "tea from the shop"
        assert tool(name="shop")(Shop()).run({"product": "tea"}) == "called for tea"

    @pytest.mark.parametrize(
        ("function", "told"),
        [
            (lambda query: query, "type hint"),
            (lambda *queries: queries, "by name"),
        ],
    )
    def test_what_cannot_be_a_tool_is_refused_when_it_is_made(self, function, told):
        with pytest.raises(ValueError, match="letters, digits"):
            Tool("<lambda>", "", {"type": "object"}, function)
        function.__name__ = "good"
        with pytest.raises(TypeError, match=told):
            tool(function)

    def test_a_schema_must_be_of_an_object(self):
        with pytest.raises(ValueError, match="object"):
            Tool("x", "", {"type": "string"}, print)

    def test_it_is_frozen(self):
        with pytest.raises(AttributeError):
            place_order.name = "other"  # type: ignore[misc]

    def test_the_decorator_and_the_module_do_not_get_in_each_others_way(self):
        import diarist
        import diarist.tool as _  # noqa: F401

        assert diarist.tool is tool


BY_HAND = Tool(
    "place_order",
    "Place an order.",
    {
        "type": "object",
        "properties": {
            "product": {"type": "string", "minLength": 1},
            "kg": {"type": "number", "minimum": 0.1, "maximum": 50},
            "grind": {"enum": ["moka", "filter"]},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}, "maxItems": 2}, {"type": "null"}]},
            "address": {"$ref": "#/$defs/Address"},
        },
        "required": ["product"],
        "$defs": {"Address": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    },
    lambda **given: given,
)


class TestWhatIsLetThrough:
    @pytest.mark.parametrize("made", [place_order, BY_HAND])
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({}, "product"),
            ({"product": 5}, "product"),
            ({"product": None}, "product"),
            ({"product": ["x"]}, "product"),
            ({"product": "x", "kg": 0}, "kg"),
            ({"product": "x", "kg": "much"}, "kg"),
            ({"product": "x", "grind": "espresso"}, "grind"),
            ({"product": "x", "tags": ["a", 1]}, "tags"),
            ({"product": "x" * 64_001}, "product"),
            ({"product": "x", "tags": ["y" * 64_001]}, "tags"),
            ({"product": "x", "owner": "someone else"}, "owner"),
            ({"product": "x", "required": ["product"]}, "required"),
        ],
    )
    def test_r25_r55_what_is_wrong_is_told_with_the_field_and_what_is_allowed(self, made, arguments, told):
        with pytest.raises(ValueError, match=told) as error:
            made.check(arguments)
        assert str(error.value).startswith("place_order: ")
        assert "place_order takes product (string, required), kg (number)" in str(error.value)
        assert 'one of "moka", "filter"' in str(error.value)
        assert len(str(error.value)) < 1_000

    def test_the_function_gets_the_types_of_its_hints_and_its_own_defaults(self):
        got: list[Any] = []

        @tool
        def ship(address: Address, days: int = 3, note: object = got) -> None:
            got.append((address, days, note))

        ship.run({"address": {"street": "Mitre 1"}, "days": "4"})
        assert got == [(Address(street="Mitre 1", city="Rosario"), 4, got)]
        with pytest.raises(ValueError, match=r"address\.street"):
            ship.check({"address": {}})
        with pytest.raises(ValueError, match=r"64,000 are allowed"):
            ship.check({"address": {"street": "x" * 64_001}})

    def test_by_hand_all_of_it_passes_as_it_is(self):
        good = {"product": "x", "kg": 2, "grind": "moka", "tags": None, "address": {"city": "Rosario"}}
        assert BY_HAND.check(good) == good
        for bad in (
            {"tags": ["a", "b", "c"]},
            {"address": {}},
            {"address": {"city": 1}},
            {"kg": True},
            {"product": ""},
        ):
            with pytest.raises(ValueError, match=next(iter(bad))):
                BY_HAND.check({"product": "x", **bad})


class TestResults:
    @pytest.mark.parametrize(
        ("result", "text"),
        [
            ("Saved.", "Saved."),
            (None, NO_OUTPUT),
            ("", NO_OUTPUT),
            (" \n", NO_OUTPUT),
            ({"città": "Córdoba"}, '{"città": "Córdoba"}'),
            ([1, 2.5, True], "[1, 2.5, true]"),
            (0, "0"),
            ({3}, "[3]"),
            (Address(street="Mitre 1"), '{"street": "Mitre 1", "city": "Rosario"}'),
            ("half \ud83d pair", "half \ufffd pair"),
            ("a\0b", "a b"),
        ],
    )
    def test_they_are_text_never_empty_and_clean(self, result, text):
        assert as_text(result) == text

    def test_dataclasses_and_what_json_cannot_hold(self):
        @dataclass
        class Order:
            number: int
            at: Any

        assert as_text(Order(17, Address)) == json.dumps({"number": 17, "at": str(Address)})

    def test_they_are_capped_and_it_is_said(self):
        text = as_text("x" * 100_000 + "end")
        assert len(text) < MAX_TEXT + 100
        assert "characters left out" in text
        assert text.endswith("end")

    def test_async_functions_run_also_inside_a_running_loop(self):
        @tool
        async def later(x: int) -> int:
            await asyncio.sleep(0)
            return x + 1

        async def inside() -> str:
            return later.run({"x": 2})

        assert later.run({"x": 1}) == "2"
        assert asyncio.run(inside()) == "3"

    def test_what_an_async_function_raises_is_raised(self):
        @tool
        async def fails() -> None:
            raise KeyError("gone")

        async def inside() -> str:
            return fails.run({})

        with pytest.raises(KeyError, match="gone"):
            asyncio.run(inside())
