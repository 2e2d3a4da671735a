from attnviz.browse.session.cache import LruCache


def test_cache_forgets_what_was_asked_for_longest_ago() -> None:
    cache: LruCache[int] = LruCache(2)
    cache.keep("a", 1)
    cache.keep("b", 2)
    assert cache.get("a", lambda: 0) == 1
    assert cache.get("c", lambda: 3) == 3
    assert (cache.find("a"), cache.find("b"), cache.find("c")) == (1, None, 3)
