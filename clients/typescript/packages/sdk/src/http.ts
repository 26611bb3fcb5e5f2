import { SemelError, type Problem } from './errors.js';
import { PROTOCOL } from './wire.js';

/** Where the server is, and how it is called. */
export interface Connection {
  /** Address of the server; `SEMEL_URL` by default, else http://127.0.0.1:7700. */
  url?: string;
  /** API key; `SEMEL_TOKEN` by default. */
  token?: string;
  /** Replaces the built-in transport, for example in a browser or a test. */
  fetch?: typeof fetch;
}

export interface Call {
  method?: 'GET' | 'POST' | 'DELETE';
  /** Body as JSON text. */
  body?: string;
  headers?: { [name: string]: string };
  /** How long an answer is waited for, in milliseconds; 30 seconds by default. */
  timeout?: number;
  signal?: AbortSignal;
}

export interface Answer {
  status: number;
  headers: { get(name: string): string | null };
  text: string;
  /** Whether an earlier try of the same call may have taken place. */
  again?: boolean;
}

type Send = (url: URL, call: Call & { headers: { [name: string]: string } }) => Promise<Answer>;

/** Errors of a connection that was not made. */
const UNREACHED = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN']);

const http = await import('node:http').catch(() => undefined);
const https = await import('node:https').catch(() => undefined);

/** A connection to a server. Node's own client is about twice as fast as `fetch`; elsewhere `fetch` is used. */
export class Transport {
  readonly url: string;
  private readonly headers: { [name: string]: string };
  private readonly send: Send;
  private readonly agents = { 'http:': http && new http.Agent({ keepAlive: true, noDelay: true }), 'https:': https && new https.Agent({ keepAlive: true, noDelay: true }) };

  constructor(connection: Connection = {}) {
    const env = globalThis.process?.env ?? {};
    this.url = (connection.url ?? env['SEMEL_URL'] ?? 'http://127.0.0.1:7700').replace(/\/+$/, '');
    const token = connection.token ?? env['SEMEL_TOKEN'];
    this.headers = { 'content-type': 'application/json', 'semel-protocol': PROTOCOL };
    if (token !== undefined && token !== '') this.headers['authorization'] = `Bearer ${token}`;
    const { fetch } = connection;
    this.send = fetch === undefined && http !== undefined ? (url, call) => this.byNode(url, call) : byFetch(fetch ?? globalThis.fetch);
  }

  /** One call. An answer of 400 and above is a `SemelError`; so is none, with the status 0. */
  async call(path: string, call: Call = {}): Promise<Answer> {
    let answer: Answer;
    try {
      answer = await this.send(new URL(`${this.url}/api/v1${path}`), { ...call, headers: { ...this.headers, ...call.headers } });
    } catch (cause) {
      if (call.signal?.aborted) throw call.signal.reason;
      const detail = `no answer from ${this.url}: ${cause instanceof Error ? cause.message : String(cause)}`;
      throw new SemelError({ status: 0, code: 'NO_ANSWER', detail, unsure: !isUnreached(cause) }, { cause });
    }
    if (answer.status >= 400) throw new SemelError(problemOf(answer));
    return answer;
  }

  /** The same call, again and again while the server cannot answer. Only for calls that may be repeated. */
  async patiently(path: string, call: Call = {}, until = Number.POSITIVE_INFINITY): Promise<Answer> {
    let again = false;
    for (let tries = 0; ; tries++) {
      try {
        return { ...await this.call(path, call), again };
      } catch (error) {
        if (!(error instanceof SemelError)) throw error;
        again = error.unsure ||= again;
        const pause = Math.min(50 * 2 ** tries, 2_000) * (0.5 + Math.random() / 2);
        if (!error.retryable || performance.now() + pause > until) throw error;
        await paused(pause, call.signal);
      }
    }
  }

  /** Ends idle connections, so that the process can end. */
  close(): void {
    this.agents['http:']?.destroy();
    this.agents['https:']?.destroy();
  }

  private byNode(url: URL, call: Call & { headers: { [name: string]: string } }): Promise<Answer> {
    const secure = url.protocol === 'https:';
    const agent = this.agents[secure ? 'https:' : 'http:'];
    return new Promise((resolve, reject) => {
      const body = call.body === undefined ? undefined : Buffer.from(call.body, 'utf8');
      const headers: { [name: string]: string | number } = { ...call.headers };
      if (body !== undefined) headers['content-length'] = body.length;
      const options = { method: call.method ?? 'POST', headers, ...(agent && { agent }), ...(call.signal && { signal: call.signal }) };
      const request = (secure ? https! : http!).request(url, options, response => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          if (!response.complete) return reject(new Error('the connection ended within the answer'));
          const get = (name: string) => response.headers[name]?.toString() ?? null;
          resolve({ status: response.statusCode ?? 0, headers: { get }, text: Buffer.concat(chunks).toString('utf8') });
        });
      });
      request.setTimeout(call.timeout ?? 30_000, () => request.destroy(new Error('the server did not answer in time')));
      request.on('error', reject);
      request.end(body);
    });
  }
}

/** Whether a call has not reached the server: there was no connection to it. */
function isUnreached(error: unknown): boolean {
  const codes = [error, (error as Error).cause].map(one => (one as { code?: unknown } | undefined)?.code);
  return codes.some(code => typeof code === 'string' && UNREACHED.has(code));
}

/** Waits; an abort ends the wait by its reason. */
function paused(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

function byFetch(fetch: typeof globalThis.fetch): Send {
  return async (url, call) => {
    const late = AbortSignal.timeout(call.timeout ?? 30_000);
    const signal = call.signal === undefined ? late : AbortSignal.any([call.signal, late]);
    const response = await fetch(url, { method: call.method ?? 'POST', headers: call.headers, body: call.body ?? null, signal });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
}

function problemOf(answer: Answer): Problem {
  let said: { code?: string; detail?: string; title?: string; owner?: string; pointers?: string[]; error?: unknown } = {};
  try {
    said = JSON.parse(answer.text) as typeof said;
  } catch {
    // A proxy in between answers with a text of its own.
    said = { detail: answer.text.slice(0, 200) };
  }
  const problem: Problem = {
    status: answer.status,
    code: said.code ?? `HTTP_${answer.status}`,
    detail: said.detail ?? said.title ?? 'the server has refused the call',
    // Worker routes name the error of the store: "unavailable" says that nothing was written.
    unsure: answer.status >= 500 && said.error !== 'unavailable',
  };
  if (said.owner !== undefined) problem.owner = said.owner;
  if (said.pointers !== undefined) problem.pointers = said.pointers;
  return problem;
}

/** Refuses a server that speaks another protocol. */
export function checkProtocol(answer: Answer): void {
  const spoken = answer.headers.get('semel-protocol');
  if (spoken !== null && spoken !== PROTOCOL) {
    throw new Error(`the server speaks version ${spoken} of the worker protocol, and this SDK version ${PROTOCOL}: install the SDK of the server's release`);
  }
}
