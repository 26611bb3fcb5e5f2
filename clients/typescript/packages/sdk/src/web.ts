import type { Semel, StartOptions } from './client.js';
import { Fail, SemelError } from './errors.js';
import type { Workflow } from './workflow.js';

/** How a request becomes a start. */
export interface WebOptions<In> extends Omit<StartOptions, 'key'> {
  /** The input of the workflow; the body of the request by default. */
  input?: (body: unknown) => In;
}

/** Handlers of web frameworks, as far as they are used. */
export interface StartHandler {
  express: (
    request: { body?: unknown; get(name: string): string | undefined },
    response: { status(code: number): { set(headers: { [name: string]: string }): { json(body: unknown): unknown } } },
  ) => Promise<void>;
  hono: (context: { req: { raw: Request } }) => Promise<Response>;
  next: (request: Request) => Promise<Response>;
}

interface Answered {
  status: number;
  headers: { [name: string]: string };
  body: unknown;
}

/** Starts a workflow for a request: 201 with the run, 200 if the key has it already, or the server's refusal. */
export async function answered<In, Out>(
  semel: Semel,
  workflow: Workflow<In, Out>,
  header: string | undefined,
  read: () => Promise<unknown>,
  { input, ...options }: WebOptions<In>,
): Promise<Answered> {
  try {
    const body = await read();
    const given = input === undefined ? (body as In) : input(body);
    const key = header === undefined ? undefined : keyOf(header);
    const { run, created, verdict } = await semel.start(workflow, given, key === undefined ? options : { ...options, key });
    const replayed = verdict === 'attached' || verdict === 'replayed';
    return { status: created ? 201 : 200, headers: replayed ? { 'Idempotent-Replayed': 'true' } : {}, body: { run, created, verdict } };
  } catch (error) {
    return refusal(error);
  }
}

/** The key in the header: bare, or quoted as in the draft of the IETF. */
function keyOf(header: string): string {
  const quoted = /^"(.*)"$/s.exec(header.trim());
  return quoted === null ? header.trim() : quoted[1]!.replace(/\\([\\"])/g, '$1');
}

function refusal(error: unknown): Answered {
  const problem = (status: number, code: string, detail: string, more: object = {}) => ({
    status,
    headers: { 'content-type': 'application/problem+json' },
    body: { status, code, detail, ...more },
  });
  if (error instanceof SyntaxError) return problem(400, 'BODY_INVALID', `the body is not JSON: ${error.message}`);
  if (error instanceof Fail && error.code === 'INPUT_INVALID') return problem(422, error.code, error.message);
  if (!(error instanceof SemelError) || error.status === 401 || error.status === 403) throw error;
  const { status, code, detail, owner, pointers } = error;
  return problem(status === 0 ? 503 : status, code, detail, { ...(owner !== undefined && { owner }), ...(pointers.length > 0 && { pointers }) });
}
