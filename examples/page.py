"""Way 2: a page that the model always sees, whole, in its instructions. Simple and predictable, for the few main facts;
it has a budget, and what does not fit is refused, never cut.

    python examples/page.py "What should I drink today?"
"""

import sys

from diarist import Agent, ChatModel, Memory, PageFull

SHOP = "You are the shop assistant of a coffee roaster. Answer in one sentence."
FACTS = ("Her name is Lucía.", "Alergia a las nueces: nada con nueces.", "Writes by WhatsApp, never phones.")


def main(said: str) -> None:
    with Memory("memory") as memory:
        diary = memory.diary("c-2291")
        for fact in FACTS:
            try:
                diary.page.add(fact)  # a line that is there already is not added again
            except PageFull as full:
                print(f"Shorten the page first: {full}", file=sys.stderr)
        print(f"The page holds {diary.page.tokens} of {diary.page.budget} tokens:\n{diary.page.read()}")
        # briefing() has the page in it, as a block of data that no line of the page can close. Made once: a line added
        # during a session shows in the next one, and the prompt stays cacheable.
        agent = Agent(ChatModel(), SHOP + diary.briefing(), diary.tools())
        print(agent.run(said).text)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What should I drink today?")
