import type { Ctx } from './ctx.js';
import { fatal } from './errors.js';

/** A schema of zod, valibot, arktype and others, by the Standard Schema interface. */
export interface Schema<T> {
  readonly '~standard': {
    readonly validate: (value: unknown) => Validated<T> | Promise<Validated<T>>;
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
  };
}

type Validated<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** What a workflow is defined with. */
export interface WorkflowOptions<In> {
  /** Version of the code; `1` by default. Open runs keep the version that they were started with. */
  version?: string;
  /** Checks and types the input: in `start` before anything is sent, and in the worker. */
  input?: Schema<In>;
}

/** A workflow: its name, version and code. It is shared by the programs that start it and the worker that runs it. */
export interface Workflow<In, Out> {
  readonly name: string;
  readonly version: string;
  readonly input: Schema<In> | undefined;
  readonly code: (ctx: Ctx, input: In) => Promise<Out>;
}

/** Any workflow, for lists of them. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type AnyWorkflow = Workflow<any, any>;

export function workflow<In, Out>(name: string, code: (ctx: Ctx, input: In) => Promise<Out>): Workflow<In, Out>;
export function workflow<In, Out>(
  name: string,
  options: WorkflowOptions<In>,
  code: (ctx: Ctx, input: In) => Promise<Out>,
): Workflow<In, Out>;
/** Defines a workflow: an ordinary async function whose effects are steps of `ctx`. */
export function workflow<In, Out>(
  name: string,
  options: WorkflowOptions<In> | ((ctx: Ctx, input: In) => Promise<Out>),
  code?: (ctx: Ctx, input: In) => Promise<Out>,
): Workflow<In, Out> {
  if (typeof options === 'function') return { name, version: '1', input: undefined, code: options };
  if (code === undefined) throw new TypeError(`the workflow ${name} has no code: give an async function`);
  return { name, version: options.version ?? '1', input: options.input, code };
}

/** A value as its schema gives it. What does not fit is a failure that no retry mends. */
export async function checked<T>(schema: Schema<T> | undefined, value: unknown, what: string): Promise<T> {
  if (schema === undefined) return value as T;
  const result = await schema['~standard'].validate(value);
  if (result.issues === undefined) return result.value;
  const told = result.issues.map(issue => `${(issue.path ?? []).map(segment).join('.') || what}: ${issue.message}`);
  throw fatal(`${what} does not fit its schema: ${told.join('; ')}`, { code: 'INPUT_INVALID' });
}

function segment(part: unknown): string {
  return String(typeof part === 'object' && part !== null && 'key' in part ? part.key : part);
}
