// Clients for Node, as their documentation sets them up: each case of stdin through its client.
//
// One JSON line per case: what its caller got. It must not retry by itself: that is what is observed.

import { createInterface } from 'node:readline';
import axios from 'axios';
import axiosRetry from 'axios-retry';
import Stripe from 'stripe';

const base = new URL(process.argv[2]);
const CHARGE = { amount: 2000, currency: 'usd', source: 'tok_visa' };

async function byStripe({ token, path, key, headers, retries }) {
  const stripe = new Stripe(token, {
    host: base.hostname, port: base.port, protocol: 'http', maxNetworkRetries: retries, telemetry: false,
  });
  try {
    const answer = await stripe.rawRequest('POST', path, CHARGE, {
      idempotencyKey: key, additionalHeaders: headers,
    });
    return { status: answer.lastResponse.statusCode };
  } catch (error) {
    return { threw: error.constructor.name, status: error.statusCode, code: error.code };
  }
}

const all = ({ token, key, headers }) => ({
  Authorization: `Bearer ${token}`, 'Idempotency-Key': key, 'Content-Type': 'application/json', ...headers,
});

async function byFetch(ask) {
  const answer = await fetch(new URL(ask.path, base), {
    method: 'POST', headers: all(ask), body: JSON.stringify(CHARGE),
  });
  await answer.text();
  return { status: answer.status };
}

async function byAxios(ask) {
  const client = axios.create({ validateStatus: () => true });
  axiosRetry(client, {
    retries: ask.retries,
    retryDelay: () => 600,
    validateResponse: ({ status }) => ![409, 429, 502, 503, 504].includes(status),
    retryCondition: () => true,
  });
  try {
    const answer = await client.post(new URL(ask.path, base).href, CHARGE, { headers: all(ask) });
    return { status: answer.status };
  } catch (error) {
    return { threw: error.constructor.name, status: error.response?.status };
  }
}

const clients = { 'stripe (Node)': byStripe, fetch: byFetch, 'axios-retry': byAxios };

for await (const line of createInterface({ input: process.stdin })) {
  const ask = JSON.parse(line);
  console.log(JSON.stringify(await clients[ask.client](ask)));
}
