/// <reference lib="webworker" />
import { openStream, type StreamMessage } from "./stream";

// One worker for all tabs of this browser. It opens the stream with the first tab and closes it after the last one.
const scope = self as unknown as SharedWorkerGlobalScope;
const tabs = new Set<MessagePort>();
let close: (() => void) | undefined;
let state: StreamMessage | undefined;
let begin: StreamMessage | undefined;
/** The person of the tabs: the worker's name is `stream USER`. */
const own = scope.name.slice("stream ".length);

function end(): void {
  close?.();
  close = undefined;
  state = undefined;
  begin = undefined;
}

scope.onconnect = (connection) => {
  const port = connection.ports[0];
  if (!port) return;
  tabs.add(port);
  if (state) port.postMessage(state);
  if (begin) port.postMessage(begin);
  close ??= openStream("/api/v1/events", (message) => {
    if (message.type === "state") state = message;
    if (message.type === "begin") begin = message;
    for (const tab of tabs) tab.postMessage(message);
    if (message.type === "begin" && own !== "" && message.user !== own) {
      // The stream of another person is for no tab of this worker: the tabs load again, and the next one opens a
      // stream.
      tabs.clear();
      end();
    }
  });
  port.onmessage = (message: MessageEvent<string>) => {
    if (message.data !== "bye") return;
    tabs.delete(port);
    if (tabs.size === 0) end();
  };
};
