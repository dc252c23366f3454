"""Clients for Python, as their documentation sets them up: each case of stdin through each client.

One JSON line per case and client: what its caller got. It must not retry by itself: that is what
is observed.
"""

import json
import sys

import httpx
import requests
import stripe
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

base = sys.argv[1]
CHARGE = {"amount": 2000, "currency": "usd", "source": "tok_visa"}


def by_stripe(case):
    client = stripe.StripeClient(
        case["token"], base_addresses={"api": base}, max_network_retries=case["retries"]
    )
    try:
        answer = client.raw_request(
            "post", case["path"], idempotency_key=case["key"], headers=case["headers"], **CHARGE
        )
        return {"status": answer.code}
    except stripe.StripeError as error:
        return {"threw": type(error).__name__, "status": error.http_status, "code": error.code}


def headers(case):
    return {
        "Authorization": f"Bearer {case['token']}",
        "Idempotency-Key": case["key"],
        **case["headers"],
    }


def by_requests(case):
    retry = Retry(
        total=case["retries"],
        status_forcelist=[409, 429, 502, 503, 504],
        allowed_methods=None,
        backoff_factor=0.2,
        raise_on_status=False,
    )
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retry))
        answer = session.post(base + case["path"], json=CHARGE, headers=headers(case))
        return {"status": answer.status_code}


def by_httpx(case):
    # Its transport retries only what was never sent.
    with httpx.Client(transport=httpx.HTTPTransport(retries=case["retries"])) as client:
        answer = client.post(base + case["path"], json=CHARGE, headers=headers(case), timeout=30)
        return {"status": answer.status_code}


CLIENTS = {"stripe (Python)": by_stripe, "requests": by_requests, "httpx": by_httpx}

for line in sys.stdin:
    case = json.loads(line)
    told = CLIENTS[case["client"]](case)
    print(json.dumps(told), flush=True)
