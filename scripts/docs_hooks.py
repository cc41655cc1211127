"""Links of docs/ to files outside of it lead to the repository on the site."""
import re


def on_page_markdown(markdown, config, **kwargs):
    return re.sub(r"\]\(\.\./", "](" + config["repo_url"] + "/blob/main/", markdown)
