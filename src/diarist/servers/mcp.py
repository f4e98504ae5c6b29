"""The memory tools as an MCP server. Whose diary it is about is settled before a model says a word: by `--owner`, or
by the token over HTTP. The tools themselves are in `tools.py`; the pipe is in `stdio.py`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, BinaryIO, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp.types import Tool as Told

from ..errors import DiaristError
from ..memory import Memory
from ..tool import Answer, Tool, as_text, shortened
from ..tools import BRIEFING
from . import stdio
from .tokens import Caller
from .worker import Worker

INSTRUCTIONS = f"""\
{BRIEFING}
- At the start, before your first answer, read the page (page, action "read") and recall what bears on the task."""

CALLER = "diarist.caller"
"""Where the HTTP door writes, in the ASGI scope, whose token came with the request: a `Caller` with an owner."""
PAGE, RECENT = "diarist://page", "diarist://notes/recent"
_AT_ONCE = 8  # calls that run at the same time; more wait their turn
_LONGEST_ERROR = 2_000  # characters

T = TypeVar("T")
Context = ServerRequestContext[Any, Any]
_log = logging.getLogger("diarist.mcp")


def server(memory: Memory, owner: str | None, worker: Worker) -> Server[Any]:
    """A server about the diary of `owner`; with None, of the owner whose token came with each request, which may be one
    that only reads."""
    diaries: dict[str, dict[str, Tool]] = {}
    at_once = asyncio.Semaphore(_AT_ONCE)

    def caller(context: Context) -> Caller:
        request: Any = context.request  # None over stdio
        return Caller("write", owner) if owner is not None else request.scope[CALLER]

    def opened(context: Context) -> dict[str, Tool]:
        whose = caller(context).owner
        assert whose is not None
        worker.look_at(whose)
        if whose not in diaries:
            if len(diaries) >= 1_000:  # they are quick to open again
                diaries.clear()
            diaries[whose] = {tool.name: tool for tool in memory.diary(whose).tools()}
        return diaries[whose]

    async def list_tools(context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        # A model that loads beside it would slow this answer down, which clients wait for at their start.
        asyncio.get_running_loop().call_later(0.2, worker.start)
        reads_only = caller(context).scope == "read"
        tools = [each for each in opened(context).values() if not reads_only or _may_read(each, {"action": "read"})]
        return ListToolsResult(tools=[_told(tool) for tool in tools])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        tools, arguments = opened(context), params.arguments or {}
        if params.name not in tools:
            raise MCPError(INVALID_PARAMS, f"Unknown tool {params.name[:100]!r}: there are {', '.join(tools)}")
        worker.start()
        tool = tools[params.name]
        if caller(context).scope == "read" and not _may_read(tool, arguments):
            return _failed(f"{tool.name}: the token is read-only, so nothing was changed. Tell the person so")
        return await _in_thread(at_once, _result, tool, arguments)

    async def list_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
        page = "What is always worth knowing about this person: one page of Markdown."
        return ListResourcesResult(
            resources=[
                Resource(uri=PAGE, name="page", title="The page", description=page, mime_type="text/markdown"),
                Resource(
                    uri=RECENT,
                    name="recent-notes",
                    title="Recent notes",
                    description="The notes saved last, newest first.",
                    mime_type="text/plain",
                ),
            ]
        )

    async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        tools = opened(context)
        uri = str(params.uri)
        if uri not in (PAGE, RECENT):
            raise MCPError(INVALID_PARAMS, f"Unknown resource {uri[:100]!r}: there are {PAGE} and {RECENT}")
        name, arguments = ("page", {"action": "read"}) if uri == PAGE else ("notes", {})
        result = await _in_thread(at_once, _result, tools[name], arguments)
        text = "\n".join(each.text for each in result.content if isinstance(each, TextContent))
        if result.is_error:
            raise MCPError(INVALID_PARAMS, text)
        kind = "text/markdown" if uri == PAGE else "text/plain"
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])

    async def list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
        about = "Begin with what is known: how to keep the diary, and the page."
        return ListPromptsResult(prompts=[Prompt(name="briefing", title="Begin with the diary", description=about)])

    async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        if params.name != "briefing":
            raise MCPError(INVALID_PARAMS, f"Unknown prompt {params.name[:100]!r}: there is briefing")
        page = await _in_thread(at_once, _result, opened(context)["page"], {"action": "read"})
        text = "\n\n".join([INSTRUCTIONS, *(each.text for each in page.content if isinstance(each, TextContent))])
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))])

    return Server(
        "diarist",
        version=version("diarist"),
        title="Diarist",
        description="Long-term memory: a diary about one person, searched by meaning.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def over_stdio(memory: Memory, owner: str, worker: Worker, lines: BinaryIO, wire: BinaryIO) -> None:
    """Serves one client until its lines end."""
    served = server(memory, owner, worker)

    async def run(read: Any, write: Any) -> None:
        await served.run(read, write, served.create_initialization_options())

    asyncio.run(stdio.serve(run, lines, wire))


def _may_read(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether the call changes nothing: the page is read and written by one tool."""
    return tool.annotations.get("readOnlyHint") is True or (tool.name, arguments.get("action")) == ("page", "read")


def _told(tool: Tool) -> Told:
    """The tool as MCP lists it. It is the same for every owner, and holds nothing that was stored."""
    annotations = ToolAnnotations.model_validate(tool.annotations)
    return Told(
        name=tool.name,
        title=annotations.title,
        description=tool.description,
        input_schema=dict(tool.parameters),
        annotations=annotations,
    )


def _result(tool: Tool, arguments: Mapping[str, Any]) -> CallToolResult:
    """What the tool answers. What it raises is an answer too: the model can do something about it."""
    try:
        answer = tool.result(tool.check(arguments))
    except (DiaristError, ValueError, TypeError, OSError) as error:
        return _failed(str(error) or type(error).__name__)
    except Exception as error:  # a fault of the program; what it says might hold a note, so it goes nowhere
        _log.error("%s failed: %s", tool.name, type(error).__name__)
        return _failed(f"{tool.name} failed ({type(error).__name__}). Go on without it, and tell the person so.")
    data = dict(answer.data) if isinstance(answer, Answer) else None
    return CallToolResult(content=[TextContent(type="text", text=as_text(answer))], structured_content=data)


def _failed(why: str) -> CallToolResult:
    text = shortened(as_text(why), _LONGEST_ERROR)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


async def _in_thread(at_once: asyncio.Semaphore, function: Callable[..., T], *args: Any) -> T:
    """In a thread of its own, which a cancelled call does not wait for and which keeps no process alive. One that is
    cancelled before its turn is never begun; one that is cancelled later takes up its place until it is done."""
    await at_once.acquire()
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        at_once.release()
        if not done.done():  # cancelled meanwhile
            outcome()

    def work() -> None:
        try:
            outcome = partial(done.set_result, function(*args))
        except BaseException as raised:  # raised again where it is awaited
            outcome = partial(done.set_exception, raised)
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="diarist-call", daemon=True).start()
    return await done
