"""All three ways at once: a session to go on with, a page that is always seen, and notes found by meaning.

    python examples/all_ways.py monday "Hi! A kilo of Colombia, ground for a moka pot, shipped to Rosario."
    python examples/all_ways.py tuesday "Hi again! Send me the same as last time."

What a request holds, in this order, nothing twice: the instructions, with the briefing and the page; the session so
far; what is said now, and after it what the diary knows about it.
"""

import sys

from diarist import Agent, ChatModel, Memory, tool
from diarist.events import console

SHOP = "You are the shop assistant of a coffee roaster. Place an order as soon as you know coffee, grind and city."


@tool
def place_order(product: str, grind: str, city: str) -> str:
    """Place an order with the roaster."""
    return f"Ordered: {product}, ground for {grind}, to {city}."  # roaster.py shows the key that a real one needs


def main(id: str, said: str) -> None:
    with Memory("memory") as memory:
        diary = memory.diary("c-2291")
        session = diary.session(id)
        diary.page.add("Her name is Lucía.")
        tools = [place_order, *diary.tools()]
        # The first message of a session brings its notes; later ones have them before them.
        agent = Agent(ChatModel(), SHOP + diary.briefing(), tools, auto_recall=diary.auto_recall)
        agent.events.subscribe(console())
        print(agent.run(said, session=session).text)


if __name__ == "__main__":
    main((sys.argv[1:] or ["tuesday"])[0], " ".join(sys.argv[2:]) or "Hi again! Send me the same as last time.")
