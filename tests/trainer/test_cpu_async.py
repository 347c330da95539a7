"""What the asynchronous modes ask of the CPU rollout: stop and resume, moving servers, transfer."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from disco_rl.trainer.cpu.balancer import StickyBalancer
from disco_rl.trainer.cpu.server import RolloutServer
from tests.trainer.tiny import write_model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> RolloutServer:
    folder = write_model(tmp_path_factory.mktemp("model"))
    return RolloutServer(str(folder), window=2000, max_rows=8, seed=0, threads=1)


def ask(server: RolloutServer, tokens: int) -> "asyncio.Task":
    params = {"temperature": 1.0, "max_tokens": tokens, "ignore_eos": True}
    return asyncio.create_task(
        server.generate("r", prompt_ids=[5, 6, 7], sampling_params=params)  # type: ignore[arg-type]
    )


async def test_a_stopped_request_comes_back_aborted_with_what_it_has(server: RolloutServer) -> None:
    request = ask(server, 1800)
    await asyncio.sleep(0.1)
    await server.abort_all_requests()
    reply = (await request).fields
    assert reply["stop_reason"] == "aborted"
    assert len(reply["token_ids"]) == len(reply["log_probs"]) < 1800
    waiting = ask(server, 3)
    await asyncio.sleep(0.1)
    assert not waiting.done()  # the weights may change now
    await server.resume_generation()
    reply = (await waiting).fields
    assert reply["stop_reason"] == "completed" and len(reply["token_ids"]) == 3


async def test_a_server_that_trains_sends_requests_away(server: RolloutServer) -> None:
    await server.abort_all_requests(reject_request=True)
    reply = (await ask(server, 3)).fields
    # verl's client then asks again, elsewhere.
    assert reply["stop_reason"] == "aborted" and reply["token_ids"] == []
    await server.resume_generation()
    assert (await ask(server, 3)).fields["stop_reason"] == "completed"


def test_servers_come_and_go() -> None:
    balancer = StickyBalancer({})
    with pytest.raises(RuntimeError, match="No available servers in load balancer"):
        balancer.acquire_server("r")
    balancer.add_servers({"a": 1, "b": 2})
    home, _ = balancer.acquire_server("r")
    assert balancer.acquire_server("r")[0] == home
    balancer.remove_servers([home])
    balancer.release_server(home)  # of a call that was under way
    other, _ = balancer.acquire_server("r")
    assert other != home
    balancer.add_servers({home: 1})
    assert balancer.acquire_server("new")[0] == home  # the one with less to do
    assert balancer.clear_sticky_cache()["server_loads"] == {home: 1, other: 1}


def read(replica: Any) -> dict[str, torch.Tensor]:
    return dict(replica.receive_weights())


def test_weights_arrive_as_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    from disco_rl.trainer.cpu import transfer

    monkeypatch.setattr(transfer.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    engines = [transfer.StoreCheckpointEngine(0, is_master=rank == 0) for rank in range(2)]
    replicas = [transfer.StoreCheckpointEngine(0) for _ in range(2)]
    everyone = [*engines, *replicas]
    for update in range(2):
        given = {f"layer.{i}": torch.randn(3, 4) + update for i in range(5)}
        given["half"] = torch.ones(2, dtype=torch.bfloat16)
        metadata = [engine.prepare() for engine in everyone]
        trains, samples = transfer.StoreCheckpointEngine.build_topology(2, 2, metadata)
        for engine, address in zip(
            everyone, [*trains["address"], *samples["address"]], strict=True
        ):
            engine.init_process_group(address)
        with ThreadPoolExecutor() as pool:  # they wait for what isn't sent yet
            reads = [pool.submit(read, replica) for replica in replicas]
            for engine in engines:
                asyncio.run(engine.send_weights(iter(given.items())))
        for got in (done.result() for done in reads):
            assert got.keys() == given.keys()
            assert all(torch.equal(got[name], given[name]) for name in given)
        for engine in everyone:
            engine.finalize()
