"""The server against its own document: what fits it, or nearly does, is never a fault, and answers are as it says."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from diarist.servers.names import name_of, segment
from serving import serving
from support import quick_folder

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def target():
    """A server with something in it, its schema, and what calls it."""
    with quick_folder() as place, serving(place / "memory") as server, requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {server.admin}"
        schema = schemathesis.openapi.from_dict(server.server.routes.openapi())
        # A stream does not end, an owner who is erased has nothing left to find, and lines of JSON are not made here.
        schema = schema.exclude(path_regex="(events|erase|import)$")
        owner = server.server.routes.state.served.memory.diary("fuzz")
        owner.remember("Likes tea.")
        owner.session("s").append({"role": "user", "content": "Hi."})
        yield schema, session, f"http://127.0.0.1:{server.port}"


def attack(target, mode, examples, derandomize=True):
    schema, session, url = target
    # Half of the time what is asked for is there.
    strategy = st.one_of(
        schema.as_strategy(mode, path_parameters={"owner": "fuzz", "session": "s"}), schema.as_strategy(mode)
    )
    seen = set()

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=derandomize, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def ask(case):
        answer = case.call(base_url=url, session=session)
        case.validate_response(answer, checks=CHECKS)
        seen.add((case.operation.label, answer.status_code))

    ask()
    return seen


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fits", "does not fit"])
def test_t_srv_9_what_the_document_allows_and_what_it_does_not_is_never_a_fault(target, mode):
    """T-SRV-9: no 500, and every answer has the form that the document gives it."""
    seen = attack(target, mode, 40)
    assert len({label for label, _ in seen}) > 6
    statuses = {status for _, status in seen}
    assert statuses & ({200, 201} if mode is GenerationMode.POSITIVE else {400, 405, 415})


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fits", "does not fit"])
def test_t_srv_9_at_length(target, mode):
    """T-SRV-9: the same, many times over."""
    attack(target, mode, 2_000, derandomize=False)


@given(st.text(min_size=1))
@settings(max_examples=100, deadline=None)
def test_a_name_in_a_path_comes_back_as_it_was(name):
    part = segment(name)
    assert name_of(part) == name
    assert part.isascii()
    assert not set(part) & set("/%?#\\ ")
    assert part not in (".", "..")


@given(st.text(alphabet="~aA0-_=./ é", max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_part_of_a_path_is_one_name_or_none(part):
    """Each name has two spellings at most: its own, and the encoded one."""
    try:
        name = name_of(part)
    except ValueError:
        return
    assert part in (name, "~" + urlsafe_b64encode(name.encode()).decode().rstrip("="))
    assert name_of(segment(name)) == name
