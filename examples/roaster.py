"""The shop assistant of a coffee roaster, who knows a customer again. Run it on two days:

export OPENAI_BASE_URL=http://localhost:11434/v1 DIARIST_MODEL=llama3.1
python examples/roaster.py "Hi! A kilo of Colombia, ground for a moka pot, shipped to Rosario."
python examples/roaster.py "Hi again! Send me the same as last time."
"""

import sys
import uuid
from pathlib import Path

from diarist import Agent, ChatModel, Memory, Tool, tool
from diarist.events import console

SHOP = (
    "You are the shop assistant of a coffee roaster. Save each fact on its own: what they buy, the grind, the city. "
    "Place an order as soon as you know all three."
)


def order_tool(conversation: str) -> Tool:
    """Your code: the agent knows no more about orders than this function tells."""

    @tool
    def place_order(product: str, grind: str, city: str) -> str:
        """Place an order with the roaster.

        product: which coffee and how much
        grind: what it is ground for
        """
        # The key makes a retry harmless: the same order in the same conversation is one order. A file stands here for
        # what your shop's API does with it.
        key = uuid.uuid5(uuid.NAMESPACE_OID, repr((conversation, product, grind, city))).hex
        Path("orders").mkdir(exist_ok=True)
        try:
            Path("orders", key).touch(exist_ok=False)
        except FileExistsError:
            return f"Order {key[:8]} was placed already; nothing was done."
        return f"Order {key[:8]} is placed: {product}, ground for {grind}, to {city}."

    return place_order


def main(said: str) -> None:
    with Memory("memory") as memory:
        diary = memory.diary("c-2291")  # whose diary: your program says, no model can
        tools = [order_tool(uuid.uuid4().hex), *diary.tools()]
        agent = Agent(ChatModel(), SHOP + diary.briefing(), tools, max_turns=10)
        agent.events.subscribe(console())  # what happens, on stderr
        print(agent.run(said).text)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Hi again! Send me the same as last time.")
