// The stream of events. All tabs of a browser share one stream: over HTTP/1.1 a browser opens six connections to a
// host, so that six tabs with a stream each would block the seventh request.

export type StreamEvent = { serial: number; kind: string; objects: string[]; change?: string };

/** A message of the stream to its tabs. `reset` asks them to read everything again, because events
 * were missed; `refused` says that the engine answered without a stream, so that the session may have ended. */
export type StreamMessage =
  | { type: "state"; connected: boolean; since: number }
  | { type: "event"; event: StreamEvent }
  | { type: "refused" }
  | { type: "reset" };

/** Opens one stream and passes on what it brings. The browser reconnects by itself, with `Last-Event-ID`. */
export function openStream(url: string, send: (message: StreamMessage) => void): () => void {
  let closed = false;
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let last = "";
  const open = () => {
    source = new EventSource(last === "" ? url : `${url}?after=${encodeURIComponent(last)}`);
    source.onopen = () => send({ type: "state", connected: true, since: Date.now() });
    source.onerror = () => {
      send({ type: "state", connected: false, since: Date.now() });
      // A browser gives up after an answer that is no stream (a proxy's 502, or 401 after the session's end).
      if (source?.readyState === EventSource.CLOSED && !closed) {
        send({ type: "refused" });
        clearTimeout(retry);
        retry = setTimeout(open, 3_000);
      }
    };
    source.addEventListener("change", (message) => {
      last = message.lastEventId;
      send({ type: "event", event: JSON.parse(message.data as string) as StreamEvent });
    });
    source.addEventListener("reset", (message) => {
      last = message.lastEventId;
      send({ type: "reset" });
    });
  };
  open();
  return () => {
    closed = true;
    clearTimeout(retry);
    source?.close();
  };
}
