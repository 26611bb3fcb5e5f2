"""A worker that lives as long as a FastAPI application."""

from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from semel import AsyncSemel, Ctx, workflow
from semel.testing import TestServer


def test_a_worker_lives_as_long_as_the_application(semel_server: TestServer) -> None:
    @workflow("py-web")
    async def order(ctx: Ctx, id: str) -> str:
        return await ctx.step("charge", lambda a: f"charged {id}")

    semel = AsyncSemel(semel_server.url)
    app = FastAPI(lifespan=semel.lifespan([order]))

    @app.post("/orders/{id}")
    async def start(id: str) -> dict[str, Any]:
        run = await semel.start(order, id, key=f"web-{id}")
        return {"result": await run.result(20), "created": run.created}

    with TestClient(app) as client:
        assert client.post("/orders/7").json() == {"result": "charged 7", "created": True}
        assert client.post("/orders/7").json() == {"result": "charged 7", "created": False}
