"""Executes the few ``aws`` commands that the documents show, on the server that ``AWS_ENDPOINT_URL`` names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def main(arguments: list[str]) -> None:
    match arguments:
        case ["s3", "mb", url, *_]:
            region = option(arguments, "--region")
            client = boto3.client("s3", region_name=region)
            client.create_bucket(Bucket=urlsplit(url).netloc, CreateBucketConfiguration={"LocationConstraint": region})
        case ["s3", "ls", "--recursive", url]:
            parts = urlsplit(url)
            found = boto3.client("s3").list_objects_v2(Bucket=parts.netloc, Prefix=parts.path[1:])
            sys.stdout.writelines(f"{each['Size']} {each['Key']}\n" for each in found.get("Contents", ()))
        case ["iam", "create-user", "--user-name", user]:
            boto3.client("iam").create_user(UserName=user)
        case ["iam", "put-user-policy", *_]:
            document = Path(option(arguments, "--policy-document").removeprefix("file://")).read_text()
            json.loads(document)
            boto3.client("iam").put_user_policy(
                UserName=option(arguments, "--user-name"),
                PolicyName=option(arguments, "--policy-name"),
                PolicyDocument=document,
            )
        case ["iam", "create-access-key", "--user-name", user, *_]:
            key = boto3.client("iam").create_access_key(UserName=user)["AccessKey"]
            sys.stdout.write(f"{key['AccessKeyId']}\t{key['SecretAccessKey']}\n")
        case _:
            sys.exit(f"aws: no such command here: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
