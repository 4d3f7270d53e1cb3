// The stream of events. All tabs of a browser share one stream: over HTTP/1.1 a browser opens six connections to a
// host, so that six tabs with a stream each would block the seventh request.

export type StreamEvent = { serial: number; kind: string; objects: string[]; change?: string };

/**
 * A message of the stream to its tabs. `begin` names the person whose stream it is; `reset` asks them to read
 * everything again, because events may have been missed; `refused` says that the engine answered without a stream, so
 * that the session may have ended.
 */
export type StreamMessage =
  | { type: "state"; connected: boolean; since: number }
  | { type: "begin"; user: string }
  | { type: "event"; event: StreamEvent }
  | { type: "refused" }
  | { type: "reset" };

/** The silence in ms after which a stream counts as broken: three beats; the engine sends one every 4 s. */
export const SILENCE = 13_000;

/** Opens one stream and passes its events on. The browser reconnects by itself, with `Last-Event-ID`. */
export function openStream(url: string, send: (message: StreamMessage) => void): () => void {
  let closed = false;
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let silence: ReturnType<typeof setTimeout> | undefined;
  let last = "";
  /** A browser does not notice a connection that broke silently, such as one through a proxy that was replaced. */
  let since = Date.now();
  const arm = () => {
    clearTimeout(silence);
    silence = setTimeout(() => {
      source?.close();
      send({ type: "state", connected: false, since });
      open();
    }, SILENCE);
  };
  const heard = () => {
    since = Date.now();
    arm();
  };
  const open = () => {
    source = new EventSource(last === "" ? url : `${url}?after=${encodeURIComponent(last)}`);
    const on = (name: string, act: (message: MessageEvent<string>) => void) =>
      source?.addEventListener(name, (message: MessageEvent<string>) => {
        heard();
        act(message);
      });
    source.onopen = () => {
      heard();
      send({ type: "state", connected: true, since: Date.now() });
    };
    source.onerror = () => {
      clearTimeout(silence);
      send({ type: "state", connected: false, since: Date.now() });
      // A browser gives up after an answer that is no stream (a proxy's 502, or 401 after the session's end).
      if (source?.readyState === EventSource.CLOSED && !closed) {
        send({ type: "refused" });
        clearTimeout(retry);
        retry = setTimeout(open, 3_000);
      } else if (!closed) {
        arm();
      }
    };
    on("begin", (message) => {
      // Without the id of an earlier event, events between the page's reads and this stream may be missing.
      const isResumed = last !== "";
      if (message.lastEventId !== "") last = message.lastEventId;
      send({ type: "begin", user: (JSON.parse(message.data) as { user: string }).user });
      if (!isResumed) send({ type: "reset" });
    });
    on("beat", () => {});
    on("change", (message) => {
      last = message.lastEventId;
      send({ type: "event", event: JSON.parse(message.data) as StreamEvent });
    });
    on("reset", (message) => {
      last = message.lastEventId;
      send({ type: "reset" });
    });
    // A new connection may be as silent as the one before.
    arm();
  };
  open();
  return () => {
    closed = true;
    clearTimeout(retry);
    clearTimeout(silence);
    source?.close();
  };
}
