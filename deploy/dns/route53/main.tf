# Global DNS in Route 53: each client gets the region nearest to it (by latency) among those whose /readyz is 200. A gateway is ready while
# it can serve or forward, so a region that has lost its keys goes on taking requests, and only one that can help nobody leaves DNS.
# Where all checks fail, Route 53 takes all regions for well: a broken check does not take the name away.

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

# A region is well while any of its fronts is.
resource "aws_route53_health_check" "region" {
  for_each = var.regions

  type                   = "CALCULATED"
  child_health_threshold = 1
  child_healthchecks = [
    for key, pair in local.checked : aws_route53_health_check.ready[key].id if pair.region == each.key
  ]

  tags = {
    Name = "onceway ${each.key}"
  }
}

resource "aws_route53_record" "region" {
  for_each = var.regions

  zone_id         = var.zone_id
  name            = var.name
  type            = "A"
  ttl             = var.ttl
  records         = each.value.addresses
  set_identifier  = each.key
  health_check_id = aws_route53_health_check.region[each.key].id

  latency_routing_policy {
    region = each.value.aws_region
  }
}
