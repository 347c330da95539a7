"""llama.cpp's own server in a process of its own, by way of the package `xllamacpp`."""

import argparse
import signal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-path", required=True, help="a GGUF file")
    parser.add_argument("--name", required=True, help="the model's name in requests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--context", type=int, default=8192, help="tokens of a slot")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt-cache-mb", type=int, default=4096)
    args = parser.parse_args()
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise SystemExit("llama.cpp isn't installed; run: pip install xllamacpp") from error
    params = xllamacpp.CommonParams()
    params.model.path = args.model_path
    params.model_alias = {args.name}
    params.hostnames, params.port = [args.host], args.port
    # One slot: questions at once over several slots would each read the shard again. The cache in
    # memory keeps the shards that the slot has left.
    params.n_ctx, params.n_parallel, params.cache_ram_mib = args.context, 1, args.prompt_cache_mb
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    params.warmup, params.endpoint_metrics, params.verbosity = False, True, 0
    server = xllamacpp.Server(params)
    print(f"serving at {server.listening_address}", flush=True)
    # A signal ends the process at once: stopping the server in order waits for the call under way.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pause()


if __name__ == "__main__":
    main()
