"""Way 1: take up an unfinished task. Every message is on the disk before the next step, so that the process may be
killed at any moment; run it again with the same id and go on.

    python examples/resume.py order-17 "A kilo of Colombia, please. I do not know the grind yet."
    python examples/resume.py order-17 "Ground for a moka pot, shipped to Rosario."
"""

import sys

from diarist import Agent, ChatModel, Memory
from diarist.events import RunStarted, SessionRepaired, console

SHOP = "You are the shop assistant of a coffee roaster. Ask for what is missing: coffee, grind, city."


def cost(event: object) -> None:
    """All of the history is sent again with every request: good for a task, dear for months of talk."""
    match event:
        case RunStarted(session=str(id)):
            print(f"Session {id}: {event.messages} messages come back, about {event.tokens} tokens.", file=sys.stderr)
        case SessionRepaired():
            print(f"It broke off in the middle of {len(event.calls)} calls; they are marked.", file=sys.stderr)


def main(id: str, said: str) -> None:
    with Memory("memory") as memory:
        diary = memory.diary("c-2291")
        session = diary.session(id)  # made, or taken up again
        # A budget leaves out the oldest turns when a long history would not fit; the saved one stays whole.
        agent = Agent(ChatModel(), SHOP, diary.tools(), token_budget=8_000)
        agent.events.subscribe(cost)
        agent.events.subscribe(console())
        print(agent.run(said, session=session).text)
        for each in diary.sessions():
            print(f"{each.last_at:%Y-%m-%d %H:%M} {each.id}: {each.messages} messages", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("which session, and what is said? resume.py order-17 'A kilo of Colombia, please.'")
    main(sys.argv[1], " ".join(sys.argv[2:]))
