// Tests a server with openai-node, in Node.

import assert from 'node:assert/strict';
import OpenAI from 'openai';

import { calls, check } from './openai_calls.mjs';

check(assert, await calls(OpenAI, process.argv[2]));
console.log('openai-node');
