// The socket: opens it, notices when it is lost, and opens it again.

const FIRST_WAIT = 400;
const LONGEST_WAIT = 8000;
const FINAL = { 4001: "taken", 4408: "idle", 1008: "refused", 1003: "refused" };

export class Connection {
  /** `onReady(welcome, restarted)`, `onMessage(message)`, `onStatus(status)`. */
  constructor(handlers) {
    this.handlers = handlers;
    this.server = null;
    this.ready = false;
    this.wait = FIRST_WAIT;
    this.socket = null;
    this.timer = null;
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.timer !== null) this.retry();
    });
  }

  open() {
    this.timer = null;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    this.socket = socket;
    socket.addEventListener("message", (event) => this.receive(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => this.closed(socket, event.code));
  }

  retry() {
    if (this.socket && this.socket.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.timer);
    this.open();
  }

  receive(message) {
    if (message.type === "welcome") {
      const restarted = this.server !== null && this.server !== message.server;
      this.server = message.server;
      this.ready = true;
      this.wait = FIRST_WAIT;
      this.handlers.onStatus("open");
      this.handlers.onReady(message, restarted);
    } else {
      this.handlers.onMessage(message);
    }
  }

  send(message) {
    if (!this.ready) {
      if (this.timer === null) this.retry();
      return false;
    }
    this.socket.send(JSON.stringify(message));
    return true;
  }

  closed(socket, code) {
    if (socket !== this.socket) return;
    this.ready = false;
    if (FINAL[code]) {
      this.handlers.onStatus(FINAL[code]);
      return;
    }
    this.handlers.onStatus(code === 1013 ? "full" : "lost");
    this.timer = setTimeout(() => this.open(), this.wait);
    this.wait = Math.min(LONGEST_WAIT, this.wait * 1.8);
  }
}
