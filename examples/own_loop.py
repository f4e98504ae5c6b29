"""Your own loop, or that of any framework: the memory tools are ordinary tools, with a JSON Schema and a function.

OPENAI_BASE_URL=http://localhost:11434/v1 DIARIST_MODEL=llama3.1 python examples/own_loop.py "The same, please."
"""

import json
import os
import sys
from typing import Any

from openai import OpenAI

from diarist import DiaristError, Memory, Tool

SHOP = "You are the shop assistant of a coffee roaster."


def main(said: str, max_turns: int = 10) -> None:
    with OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none")) as client, Memory("memory") as memory:
        diary = memory.diary("c-2291")
        # forget needs a person's approval, which is the loop's to ask for; this one asks nobody.
        tools = {each.name: each for each in diary.tools() if not each.needs_approval}
        schemas: Any = [each.schema for each in tools.values()]
        messages: list[Any] = [
            {"role": "system", "content": SHOP + diary.briefing()},
            {"role": "user", "content": said},
        ]
        for _ in range(max_turns):
            model = os.environ["DIARIST_MODEL"]
            answer = client.chat.completions.create(model=model, messages=messages, tools=schemas)
            reply = answer.choices[0].message
            if not reply.tool_calls:
                print(reply.content)
                return
            calls: Any = [call.model_dump(include={"id", "type", "function"}) for call in reply.tool_calls]
            # Rebuilt, not sent back as it came: servers refuse null content, and fields of their own.
            messages.append({"role": "assistant", "content": reply.content or "", "tool_calls": calls})
            for call in calls:
                result = result_of(tools, **call["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        print(f"no answer after {max_turns} turns")


def result_of(tools: dict[str, Tool], name: str, arguments: str) -> str:
    """What the model is told. `run` checks the arguments first, and its errors say what is allowed."""
    if name not in tools:
        return f"There is no tool {name!r}; the tools are {', '.join(tools)}."
    try:
        return tools[name].run(json.loads(arguments or "{}"))
    except (ValueError, TypeError, DiaristError) as error:
        return f"{name}: {error}"


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Hi again! Send me the same as last time.")
