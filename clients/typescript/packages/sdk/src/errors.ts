import type { FailureView } from './wire.js';
import { encode } from './json.js';
import { millis, type Duration } from './duration.js';

/** What another attempt at a step can do about a failure. */
export type FailureKind = 'retryable' | 'fatal' | 'uncertain' | 'panic' | 'timeout' | 'cancelled';

/** Details of a failure that a workflow can decide by. They are recorded with it. */
export interface FailOptions {
  /** Code of the error, such as `CARD_DECLINED`. */
  code?: string;
  /** Details of the error, as JSON. */
  data?: unknown;
  /** The error behind it. */
  cause?: unknown;
}

/** A failure of a step or of a workflow. Any other error that a body throws is a retryable failure. */
export class Fail extends Error {
  override readonly name: string = 'Fail';
  readonly kind: FailureKind;
  readonly code: string | undefined;
  readonly data: unknown;
  /** Milliseconds until the next attempt, if the body has asked for a pause. */
  retryAfterMs: number | undefined;
  /** The step, hook or child at which the failure is recorded. */
  at: string | undefined;

  constructor(kind: FailureKind, message: string, options: FailOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.code = options.code;
    this.data = options.data;
  }

  /** A failure that is recorded at this place. */
  static recorded(at: string, failure: FailureView): Fail {
    const options: FailOptions = { data: failure.data };
    if (failure.code !== undefined) options.code = failure.code;
    const fail = failure.kind === 'cancelled'
      ? new Cancelled(`${at}: ${failure.message}`)
      : new Fail(failure.kind, `${at}: ${failure.message}`, options);
    fail.at = at;
    return fail;
  }
}

/** The run was asked to end. Clean up by `ctx.cleanup()` and throw it again, or return a result. */
export class Cancelled extends Fail {
  override readonly name = 'Cancelled';

  constructor(reason: string) {
    super('cancelled', reason);
  }
}

/** A failure that no other attempt mends. */
export function fatal(message: string, options?: FailOptions): Fail {
  return new Fail('fatal', message, options);
}

/** A failure of which it is not known whether the effect took place: the step is in doubt. */
export function uncertain(message: string, options?: FailOptions): Fail {
  return new Fail('uncertain', message, options);
}

/** A failure that asks for a pause before the next attempt. It says that the effect did not take place. */
export function retryAfter(message: string, pause: Duration, options?: FailOptions): Fail {
  const fail = new Fail('retryable', message, options);
  fail.retryAfterMs = millis(pause);
  return fail;
}

/** Any thrown value as a failure. */
export function failOf(thrown: unknown): Fail {
  if (thrown instanceof Fail) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new Fail('retryable', message || 'an error without a message', { cause: thrown });
}

/** A text in which halves of characters are replaced. */
function whole(text: string): string {
  return String(text).replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd');
}

/** A failure as the ledger records it. */
export function viewOf(fail: Fail): FailureView {
  const view: FailureView = { kind: fail.kind, message: whole(fail.message) };
  if (fail.code !== undefined) view.code = whole(fail.code);
  try {
    encode(fail.data);
    if (fail.data !== undefined) view.data = fail.data;
  } catch (unkept) {
    // A failure is recorded in any case.
    view.message += ` (its data cannot be kept: ${(unkept as Error).message})`;
  }
  return view;
}

/** What the server said about a call that it refused. */
export interface Problem {
  status: number;
  code: string;
  detail: string;
  /** Id of the run that owns the key or the token, if there is one. */
  owner?: string;
  /** JSON pointers to what is wrong, or to what differs from the first request under the key. */
  pointers?: string[];
  /** Whether the call may have taken place although it was not answered by a result. */
  unsure?: boolean;
}

/** A call that the server refused, or that it did not answer in time. */
export class SemelError extends Error implements Problem {
  override readonly name = 'SemelError';
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly owner?: string;
  readonly pointers: string[];
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** Whether the call may have taken place: it was sent and not answered, or it is unknown whether it was written. */
  unsure: boolean;

  constructor(problem: Problem, options?: ErrorOptions) {
    super(`${problem.code}: ${problem.detail}`, options);
    this.status = problem.status;
    this.code = problem.code;
    this.detail = problem.detail;
    if (problem.owner !== undefined) this.owner = problem.owner;
    this.pointers = problem.pointers ?? [];
    this.unsure = problem.unsure ?? false;
    this.retryable = problem.status === 429 || problem.status === 503 || problem.status === 0;
  }
}
