// What happened, in words: one line for each event that can be seen. The farm for those who read or listen.
import { asList, asNumber, asText } from "./kinds.js";
import { say, sayIf } from "./words.js";

/** The line for an event, or "" for one at which nothing is to be seen. @param {import("./farm-state.js").State} state */
export function line(event, state) {
  const text = asText(event.text), name = asText(event.name);
  switch (event.event) {
    case "RunStarted":
      return event.messages && event.session
        ? say("told_resumed", { session: asText(event.session), n: asNumber(event.messages), text: asText(event.prompt) })
        : say("told_RunStarted", { text: asText(event.prompt) });
    case "SessionSaved":
      return say("told_SessionSaved", { role: sayIf(`role_${event.role}`, asText(event.role)) });
    case "SessionTrimmed":
      return say("told_SessionTrimmed", { n: asNumber(event.messages) });
    case "ModelReplied": {
      const names = asList(event.calls).map(call => asText(asList(call)[1])).join(", ");
      return [text && say("told_ModelReplied", { text }), names && say("told_calls", { names })].filter(Boolean).join(" ");
    }
    case "TextCallSeen":
      return say("told_TextCallSeen", { names: asList(event.names).join(", ") });
    case "ToolStarted": {
      const told = Object.values(Object(event.arguments)).map(String).join(", ");
      if (name === "remember") return say("told_remember");
      return say(name === "recall" ? "told_recall" : "told_ToolStarted", { name, text: told });
    }
    case "ToolEnded":
      return say(event.ok ? "told_ToolEnded" : "told_failed", { name, text: asText(event.result) });
    case "NoteRemembered":
      return say("told_NoteRemembered", { text });
    case "Recalled":
      return event.verdict === "nothing"
        ? say("told_no_note", { query: asText(event.query) })
        : say("told_Recalled", { query: asText(event.query), verdict: sayIf(`verdict_${event.verdict}`, asText(event.verdict)),
          n: asList(event.handed_on).length });
    case "RunEnded":
      return event.stop_reason === "stop" ? say("told_RunEnded") : say("told_stopped", { text: asText(event.error) || asText(event.stop_reason) });
    case "DayClosed":
      return say("told_DayClosed");
    case "SessionRepaired":
      return say("told_SessionRepaired");
    case "ListenerFailed":
      return say("told_ListenerFailed", { text: asText(event.error) });
    case "Changed":
      return say("told_Changed");
    default:
      return state.last && "";
  }
}
