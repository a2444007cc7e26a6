"""
Batch inference on a cluster
============================

Predict every image of a large folder with a saved model, on the workers of a dask cluster::

    python examples/dask_batch_inference.py birds.safetensors photos predictions

After an interruption, the same call resumes with the missing partitions. The predictions are
Parquet files, one for each partition: pandas.read_parquet("predictions"), or any other reader.
"""

import argparse
import contextlib

from distributed import Client, LocalCluster

from skh2edl.batch import predict_folder


@contextlib.contextmanager
def connect(options):
    if options.scheduler:
        with Client(options.scheduler) as client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            processes=not options.threads,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Predict a folder of images.")
    parser.add_argument("model", help="a .safetensors file that a classifier's save() wrote")
    parser.add_argument("folder", help="the images, in folders of any depth")
    parser.add_argument("out", help="a folder that all workers can write to")
    parser.add_argument("--scheduler", help="address of a running cluster")
    parser.add_argument("--workers", type=int, default=2, help="of a cluster on this machine")
    parser.add_argument("--threads", action="store_true", help="workers in this process")
    parser.add_argument("--partition-size", type=int, default=1024, help="images in each file")
    options = parser.parse_args(arguments)

    with connect(options) as client:
        report = predict_folder(
            options.model,
            options.folder,
            options.out,
            partition_size=options.partition_size,
            client=client,
        )
    print(
        f"{report.n_images} images in {report.n_parts} parts, {report.n_parts_before} of them from "
        f"an earlier call; {report.n_unreadable} could not be read"
    )
    return report


if __name__ == "__main__":
    main()
