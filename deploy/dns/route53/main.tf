# Global DNS in Route 53: each client gets the region nearest to it (by latency) among those whose /readyz is 200. A gateway is ready while
# it can serve or forward, so a region that has lost its keys goes on taking requests, and only one that can help nobody leaves DNS.
# Where all checks fail, Route 53 takes all regions for well: a broken check does not take the name away.
# Two steps: the name is an alias, by latency, of REGION.NAME; behind that each front has a record with a check of its own, so a dead front is named
# to nobody while its region goes on. Weighted records, as Route 53 documents them behind latency aliases: one front an answer, each as often.

locals {
  checked = {
    for pair in flatten([
      for region, what in var.regions : [
        for address in what.addresses : { region = region, address = address, aws_region = what.aws_region }
      ]
    ]) : "${pair.region} ${pair.address}" => pair
  }
}

resource "aws_route53_health_check" "ready" {
  for_each = local.checked

  type              = "HTTPS"
  ip_address        = each.value.address
  fqdn              = var.check_name
  enable_sni        = true
  port              = 443
  resource_path     = "/readyz"
  request_interval  = 10
  failure_threshold = 2

  tags = {
    Name = "onceway ${each.value.region} ${each.value.address}"
  }
}

resource "aws_route53_record" "front" {
  for_each = local.checked

  zone_id         = var.zone_id
  name            = "${each.value.region}.${var.name}"
  type            = "A"
  ttl             = var.ttl
  records         = [each.value.address]
  set_identifier  = each.value.address
  health_check_id = aws_route53_health_check.ready[each.key].id

  weighted_routing_policy {
    weight = 1
  }
}

# A region is well while any of its fronts is.
resource "aws_route53_record" "region" {
  for_each = var.regions

  zone_id        = var.zone_id
  name           = var.name
  type           = "A"
  set_identifier = each.key

  alias {
    name                   = "${each.key}.${var.name}"
    zone_id                = var.zone_id
    evaluate_target_health = true
  }

  latency_routing_policy {
    region = each.value.aws_region
  }

  # What an alias names has to be there.
  depends_on = [aws_route53_record.front]
}
